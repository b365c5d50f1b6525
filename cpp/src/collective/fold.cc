#include "collective/fold.h"

#include <cstring>

#include "device/reduce.h"

namespace corro::collective {
namespace {

bool is_integer(DType dtype) { return dtype >= DType::kU8 && dtype <= DType::kI64; }

ReduceOp plain(ReduceOp op) { return op == ReduceOp::kAverage ? ReduceOp::kSum : op; }

template <typename T>
void divide(std::byte* data, uint64_t count, int32_t divisor) {
  auto* values = reinterpret_cast<T*>(data);
  for (uint64_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(values[i] / static_cast<T>(divisor));
}

/// Integers average by division, since a multiplication by 1/P would turn 49/49 into 0.
void divide_integers(DType dtype, std::byte* data, uint64_t count, int32_t divisor) {
  switch (dtype) {
    case DType::kU8:
      for (uint64_t i = 0; i < count; ++i) {
        data[i] = static_cast<std::byte>(std::to_integer<int>(data[i]) / divisor);
      }
      return;
    case DType::kI8:
      for (uint64_t i = 0; i < count; ++i) {
        data[i] = static_cast<std::byte>(static_cast<int8_t>(data[i]) / divisor);
      }
      return;
    case DType::kI16:
      return divide<int16_t>(data, count, divisor);
    case DType::kI32:
      return divide<int32_t>(data, count, divisor);
    default:
      return divide<int64_t>(data, count, divisor);
  }
}

}  // namespace

void fold_final(const OpRequest& request, int32_t size, std::byte* into,
                std::span<const std::byte* const> sources, uint64_t count) {
  const bool average = request.reduce_op == ReduceOp::kAverage;
  if (average && is_integer(request.dtype)) {
    device::fold(request.dtype, ReduceOp::kSum, into, sources, count, 1);
    divide_integers(request.dtype, into, count, size);
    if (request.postscale != 1) device::scale(request.dtype, into, into, count, request.postscale);
    return;
  }
  const double scale = average ? request.postscale / size : request.postscale;
  device::fold(request.dtype, plain(request.reduce_op), into, sources, count, scale);
}

void fold_partial(const OpRequest& request, std::byte* into,
                  std::span<const std::byte* const> sources, uint64_t count) {
  device::fold(request.dtype, plain(request.reduce_op), into, sources, count, 1);
}

void copy_contribution(const OpRequest& request, std::byte* into, const std::byte* from,
                       uint64_t count) {
  if (request.prescale != 1) {
    device::scale(request.dtype, into, from, count, request.prescale);
  } else if (into != from && count > 0) {
    std::memcpy(into, from, count * size_of(request.dtype));
  }
}

}  // namespace corro::collective
