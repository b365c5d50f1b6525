// The ops that the plug-in gives TensorFlow, registered while it loads it.
//
//   CorroAllreduce       tensors: T -> reduced: T      one operation for each, started as one unit
//   CorroBroadcast       tensors: T -> sent: T         the root's
//   CorroReducescatter   tensors: T -> reduced: T      this rank's rows
//   CorroAllgather       tensors: T -> gathered: T     all ranks' rows, which may differ in number
//   CorroAlltoall        tensor: T, splits: int32 -> received: T, received_splits: int32
//   CorroPlace           -> value: int32               rank, size and the like (place_kernel.h)
//
// An op's own name says which operation of other ranks it belongs to, as Horovod's do: in a graph
// each has another one, and eager ops, which run one after another, have that of their kind.
// `process_set_id` is the number of the group (corro_group_number), looked up at each call: engines
// come and go, graphs stay.
//
// They are stateful: else TensorFlow would run one of constants while it optimizes a graph, on some
// ranks or on all, and two that look the same as one. ops.py says that they need no order, but for
// those of loops, which are on their way under one name: each collective is there a second time, as
// CorroAllreduceInOrder and so on. In loops of tf.compat.v1, which know no such order, each run has
// the number of its turn behind the op's name (`numbers_runs`).
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels.h"
#include "place_kernel.h"

namespace corro::tensorflow {
namespace {

constexpr const char* kTypes =
    "T: list({uint8, int8, uint16, int16, uint32, int32, uint64, int64, half, bfloat16, float32, "
    "float64, bool}) >= 1";
constexpr const char* kType =
    "T: {uint8, int8, uint16, int16, uint32, int32, uint64, int64, half, bfloat16, float32, "
    "float64, bool}";

/// Outputs have the shapes of the inputs.
void keep_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* const shape = TF_NewShapeHandle();
  const auto count = static_cast<int>(TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count; ++i) {
    TF_ShapeInferenceContextGetInput(context, i, shape, status);
    TF_ShapeInferenceContextSetOutput(context, i, shape, status);
  }
  TF_DeleteShapeHandle(shape);
}

/// The caller knows more of them.
void know_no_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

void make_scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* const shape = TF_ShapeInferenceContextScalar(context);
  TF_ShapeInferenceContextSetOutput(context, 0, shape, status);
  TF_DeleteShapeHandle(shape);
}

/// Parts of an op's definition, in TensorFlow's own words.
struct Definition {
  std::string name;
  std::initializer_list<const char*> inputs;
  std::initializer_list<const char*> outputs;
  std::vector<const char*> attributes;
  void (*shapes)(TF_ShapeInferenceContext* context, TF_Status* status);
};

void register_op(const Definition& definition) {
  TF_OpDefinitionBuilder* const op = TF_NewOpDefinitionBuilder(definition.name.c_str());
  for (const char* input : definition.inputs) TF_OpDefinitionBuilderAddInput(op, input);
  for (const char* output : definition.outputs) TF_OpDefinitionBuilderAddOutput(op, output);
  for (const char* attribute : definition.attributes) TF_OpDefinitionBuilderAddAttr(op, attribute);
  TF_OpDefinitionBuilderAddAttr(op, "process_set_id: int");
  TF_OpDefinitionBuilderSetIsStateful(op, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, definition.shapes);
  const Status status;
  TF_RegisterOpDefinition(op, status.get());
}

void register_collective(Definition definition) {
  definition.attributes.push_back("ignore_name_scope: bool = false");
  definition.attributes.push_back("numbers_runs: bool = false");
  register_op(definition);
  definition.name += kInOrder;
  register_op(definition);
}

constexpr const char* kReduceOp = "reduce_op: int";
constexpr const char* kPrescale = "prescale_factor: float = 1.0";
constexpr const char* kPostscale = "postscale_factor: float = 1.0";
constexpr const char* kDivides = "divides_by_size: bool = false";

void register_ops() {
  register_collective({.name = "CorroAllreduce",
                       .inputs = {"tensors: T"},
                       .outputs = {"reduced: T"},
                       .attributes = {kTypes, kReduceOp, kPrescale, kPostscale, kDivides},
                       .shapes = &keep_shapes});
  register_collective({.name = "CorroBroadcast",
                       .inputs = {"tensors: T"},
                       .outputs = {"sent: T"},
                       .attributes = {kTypes, "root_rank: int"},
                       .shapes = &keep_shapes});
  register_collective({.name = "CorroReducescatter",
                       .inputs = {"tensors: T"},
                       .outputs = {"reduced: T"},
                       .attributes = {kTypes, kReduceOp, kPrescale, kPostscale, kDivides},
                       .shapes = &know_no_shapes});
  register_collective({.name = "CorroAllgather",
                       .inputs = {"tensors: T"},
                       .outputs = {"gathered: T"},
                       .attributes = {kTypes},
                       .shapes = &know_no_shapes});
  register_collective({.name = "CorroAlltoall",
                       .inputs = {"tensor: T", "splits: int32"},
                       .outputs = {"received: T", "received_splits: int32"},
                       .attributes = {kType},
                       .shapes = &know_no_shapes});
  register_op({.name = "CorroPlace",
               .inputs = {},
               .outputs = {"value: int32"},
               .attributes = {"what: int"},
               .shapes = &make_scalar});
}

[[maybe_unused]] const bool kRegistered = [] {
  register_ops();
  register_kernels();
  register_place_kernel();
  return true;
}();

}  // namespace
}  // namespace corro::tensorflow
