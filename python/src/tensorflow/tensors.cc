#include "tensors.h"

namespace corro::tensorflow {

uint8_t dtype_of(const TF_Tensor* tensor, Status& status) {
  switch (TF_TensorType(tensor)) {
    case TF_BOOL:
      return CORRO_BOOL;
    case TF_UINT8:
      return CORRO_U8;
    case TF_INT8:
      return CORRO_I8;
    case TF_INT16:
      return CORRO_I16;
    case TF_INT32:
      return CORRO_I32;
    case TF_INT64:
      return CORRO_I64;
    case TF_HALF:
      return CORRO_F16;
    case TF_BFLOAT16:
      return CORRO_BF16;
    case TF_FLOAT:
      return CORRO_F32;
    case TF_DOUBLE:
      return CORRO_F64;
    case TF_UINT16:
      return CORRO_U16;
    case TF_UINT32:
      return CORRO_U32;
    case TF_UINT64:
      return CORRO_U64;
  }
  status.set(CORRO_INVALID_ARGUMENT, "corro has no such dtype");
  return CORRO_U8;
}

std::vector<int64_t> shape_of(const TF_Tensor* tensor) {
  std::vector<int64_t> shape(static_cast<size_t>(TF_NumDims(tensor)));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = TF_Dim(tensor, static_cast<int>(i));
  return shape;
}

uint64_t row_of(const std::vector<int64_t>& shape) {
  uint64_t count = 1;
  for (size_t i = 1; i < shape.size(); ++i) count *= static_cast<uint64_t>(shape[i]);
  return count;
}

std::vector<uint64_t> dims_of_row(const std::vector<int64_t>& shape) {
  return {shape.begin() + 1, shape.end()};
}

std::vector<uint64_t> even_rows(int64_t rows, int ranks) {
  std::vector<uint64_t> parts(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    parts[static_cast<size_t>(rank)] =
        static_cast<uint64_t>(rows / ranks + (rank < rows % ranks ? 1 : 0));
  return parts;
}

Tensor input_of(const InFlight& call, int i, const Status& status) {
  TF_Tensor* input = nullptr;
  TF_GetInput(call.context(), i, &input, status.get());
  return Tensor(input);
}

TF_Tensor* make_output(InFlight& call, int i, TF_DataType type, const std::vector<int64_t>& shape,
                       const Status& status) {
  TF_Tensor* const output = TF_AllocateOutput(call.context(), i, type, shape.data(),
                                              static_cast<int>(shape.size()), 0, status.get());
  return output == nullptr ? nullptr : call.keep(output);
}

}  // namespace corro::tensorflow
