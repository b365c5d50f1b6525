// The functions that XLA calls for the custom calls of a compiled program (corro.jax.primitives):
// one custom call is one verb on some arrays, which is started by names and ends later.
//
// A custom call has these attributes: `kind`, `reduce_op`, `root`, `codec` (a dtype, -1: none),
// `prescale`, `postscale`, `group` (corro_group_number) and `name` as in corro_op; `size`, the group's
// when the program was made; `site`, which tells the lines of programs apart; and `machine`, which is
// the same where XLA makes the same of a program.
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "../huge_pages.h"
#include "../plugin/description.h"
#include "../plugin/held_group.h"
#include "../plugin/waiting.h"
#include "call.h"

namespace corro::jax {
namespace {

/// -1: corro has no such dtype.
int dtype_of(const Buffer& buffer) {
  switch (buffer.dtype) {
    case DataType::kBool:
      return CORRO_BOOL;
    case DataType::kU8:
      return CORRO_U8;
    case DataType::kI8:
      return CORRO_I8;
    case DataType::kI16:
      return CORRO_I16;
    case DataType::kI32:
      return CORRO_I32;
    case DataType::kI64:
      return CORRO_I64;
    case DataType::kF16:
      return CORRO_F16;
    case DataType::kBF16:
      return CORRO_BF16;
    case DataType::kF32:
      return CORRO_F32;
    case DataType::kF64:
      return CORRO_F64;
    case DataType::kU16:
      return CORRO_U16;
    case DataType::kU32:
      return CORRO_U32;
    case DataType::kU64:
      return CORRO_U64;
  }
  return -1;
}

uint64_t count_of(const Buffer& buffer) {
  uint64_t count = 1;
  for (int64_t i = 0; i < buffer.rank; ++i) count *= static_cast<uint64_t>(buffer.dims[i]);
  return count;
}

uint64_t bytes_of(const Buffer& buffer, const Buffer& of_dtype) {
  switch (of_dtype.dtype) {
    case DataType::kBool:
    case DataType::kU8:
    case DataType::kI8:
      return count_of(buffer);
    case DataType::kI16:
    case DataType::kU16:
    case DataType::kF16:
    case DataType::kBF16:
      return 2 * count_of(buffer);
    case DataType::kI32:
    case DataType::kU32:
    case DataType::kF32:
      return 4 * count_of(buffer);
    default:
      return 8 * count_of(buffer);
  }
}

/// A custom call whose operations are on their way.
class InFlight : public plugin::Waiting {
 public:
  InFlight(const Api& api, Future* future) : api_(api), future_(future) {}

  void over(corro_code code, const corro_error& error) override {
    if (code == CORRO_OK) {
      FutureSetAvailable said = {
          .struct_size = sizeof said, .extensions = nullptr, .future = future_};
      (void)api_.set_available(&said);
      return;
    }
    FutureSetError said = {.struct_size = sizeof said,
                           .extensions = nullptr,
                           .future = future_,
                           .error = make_error(api_, code, error.message)};
    (void)api_.set_error(&said);
  }

 private:
  const Api& api_;
  Future* future_;
};

/// How many copies there are of each line of a program. XLA copies a part that is used more than once
/// (a jitted function that another one calls twice, the body of a loop that it unrolls), and runs the
/// copies in any order: each needs a name of its own.
class Copies {
 public:
  int add(const std::string& site) {
    const std::scoped_lock lock(mutex_);
    return counts_[site]++;
  }
  bool has_several(const std::string& site) {
    const std::scoped_lock lock(mutex_);
    return counts_[site] > 1;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};

/// Of the process: XLA has no other place for it.
Copies& copies() {
  static Copies of_process;
  return of_process;
}

/// Of the operations of a call. A copy is known by its number, in the order in which XLA has made
/// them: that is the same where jaxlib and processor are, and else no rank finds the name.
std::string name_of(const Call& call) {
  std::string name = call.text("name");
  if (!copies().has_several(call.text("site"))) return name;
  return name + "#" + std::to_string(call.kept()) + "@" + call.text("machine");
}

Error* instantiate(const Call& call) {
  const int copy = copies().add(call.text("site"));
  if (call.keep(copy) || copy == 0) return nullptr;
  return call.error(
      CORRO_UNIMPLEMENTED,
      call.text("name") +
          ": XLA runs this part of the program more than once, which this jaxlib cannot tell apart:"
          " use a newer one, or, of a jitted function, jax.jit(..., inline=True)");
}

/// Describes argument i and its result as an operation.
plugin::Description describe(const Call& call, const std::string& name, int i) {
  plugin::Description description;
  const Buffer& input = call.argument(i);
  const Buffer& output = call.result(i);
  corro_op& op = description.op;
  op.kind = static_cast<uint8_t>(call.whole("kind"));
  op.dtype = static_cast<uint8_t>(dtype_of(input));
  op.reduce_op = static_cast<uint8_t>(call.whole("reduce_op"));
  op.has_scales = 1;
  op.prescale = call.number("prescale");
  op.postscale = call.number("postscale");
  op.root = static_cast<int32_t>(call.whole("root"));
  op.input = input.data;
  op.output = output.data;
  ask_for_huge_pages(output.data, bytes_of(output, input));
  const bool has_parts = op.kind == CORRO_REDUCESCATTER || op.kind == CORRO_ALLTOALL;
  op.count = count_of(input) / (has_parts ? static_cast<uint64_t>(call.whole("size")) : 1);
  if (const int64_t codec = call.whole("codec"); codec >= 0)
    op.codec = corro_cast_codec(static_cast<uint8_t>(codec));
  description.dims.assign(input.dims, input.dims + input.rank);
  description.name = plugin::name_of(name, i, call.size());
  return description;
}

/// What others than the root get of a reduction for the root.
void zero_results(const Call& call) {
  for (int i = 0; i < call.size(); ++i)
    std::memset(call.result(i).data, 0, bytes_of(call.result(i), call.argument(i)));
}

Error* start(const Call& call) {
  corro_error error;
  const plugin::HeldGroup group(static_cast<int32_t>(call.whole("group")), error);
  if (group.get() == nullptr) return call.error(error.code, error.message);
  const int size = corro_group_size(group.get());
  if (call.whole("size") != size)
    return call.error(CORRO_FAILED_PRECONDITION,
                      call.text("name") + ": this was compiled for " +
                          std::to_string(call.whole("size")) + " ranks, which are now " +
                          std::to_string(size) + ": call jax.clear_caches()");
  if (call.whole("kind") == CORRO_REDUCE && corro_group_rank(group.get()) != call.whole("root"))
    zero_results(call);
  std::vector<plugin::Description> descriptions;
  const std::string name = name_of(call);
  for (int i = 0; i < call.size(); ++i) descriptions.push_back(describe(call, name, i));
  corro_work* work = nullptr;
  const corro_code code = plugin::submit(group.get(), descriptions, &work, &error);
  if (code != CORRO_OK) return call.error(code, error.message);
  plugin::wait_on_thread(std::make_unique<InFlight>(call.api(), call.go_on()), work);
  return nullptr;
}

}  // namespace
}  // namespace corro::jax

extern "C" {

/// Once for each custom call of a program, when it has been compiled.
[[gnu::visibility("default")]] corro::jax::Error* corro_jax_instantiate(
    corro::jax::CallFrame* frame) {
  const corro::jax::Call call(frame);
  return call.tell_metadata() ? nullptr : corro::jax::instantiate(call);
}

[[gnu::visibility("default")]] corro::jax::Error* corro_jax_execute(corro::jax::CallFrame* frame) {
  const corro::jax::Call call(frame);
  return call.tell_metadata() ? nullptr : corro::jax::start(call);
}

}  // extern "C"
