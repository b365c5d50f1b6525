#include "collective/operation/fold.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "collective/operation/adasum.h"
#include "device/reduce.h"

namespace corro::collective {
namespace {

ReduceOp plain(ReduceOp op) { return op == ReduceOp::kAverage ? ReduceOp::kSum : op; }

__extension__ using WideSum = __int128;  ///< No number of ranks overflows a sum of 64-bit integers.

/// into = the sum that does not wrap, divided and truncated toward zero.
template <typename T, typename Total>
void average(std::byte* into, std::span<const std::byte* const> sources, uint64_t count,
             int32_t divisor) {
  std::array<Total, 256> totals;
  for (uint64_t done = 0; done < count;) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(totals.size(), count - done));
    std::fill_n(totals.begin(), n, Total{0});
    for (const std::byte* source : sources) {
      const T* values = reinterpret_cast<const T*>(source) + done;
      for (size_t i = 0; i < n; ++i) totals[i] += values[i];
    }
    T* results = reinterpret_cast<T*>(into) + done;
    for (size_t i = 0; i < n; ++i) results[i] = static_cast<T>(totals[i] / divisor);
    done += n;
  }
}

void average_integers(DType dtype, std::byte* into, std::span<const std::byte* const> sources,
                      uint64_t count, int32_t divisor) {
  switch (dtype) {
    case DType::kU8:
      return average<uint8_t, int64_t>(into, sources, count, divisor);
    case DType::kI8:
      return average<int8_t, int64_t>(into, sources, count, divisor);
    case DType::kI16:
      return average<int16_t, int64_t>(into, sources, count, divisor);
    case DType::kI32:
      return average<int32_t, int64_t>(into, sources, count, divisor);
    case DType::kU16:
      return average<uint16_t, int64_t>(into, sources, count, divisor);
    case DType::kU32:
      return average<uint32_t, int64_t>(into, sources, count, divisor);
    case DType::kU64:
      return average<uint64_t, WideSum>(into, sources, count, divisor);
    default:
      return average<int64_t, WideSum>(into, sources, count, divisor);
  }
}

/// The ranks that an average is of. Peers decide who is absent: never none.
int32_t divisor_of(const OpRequest& request, int32_t size) {
  return std::max(size - request.absent, 1);
}

template <typename T>
T identity_of(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::kProduct:
      return T{1};
    case ReduceOp::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ReduceOp::kMax:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    default:
      return T{0};
  }
}

/// Of a type of 16 bits that has the sign, the infinity and the one of a floating-point format.
uint16_t half_identity_of(ReduceOp op, uint16_t infinity, uint16_t one) {
  constexpr uint16_t kSign = 0x8000;
  if (op == ReduceOp::kProduct) return one;
  if (op == ReduceOp::kMin) return infinity;
  return op == ReduceOp::kMax ? kSign | infinity : 0;
}

template <typename T>
void fill(std::byte* into, uint64_t count, T value) {
  std::fill_n(reinterpret_cast<T*>(into), count, value);
}

}  // namespace

void fold_final(const OpRequest& request, int32_t size, std::byte* into,
                std::span<const std::byte* const> sources, uint64_t count) {
  if (folds_at_once(request)) {
    average_integers(request.dtype, into, sources, count, divisor_of(request, size));
    if (request.postscale != 1) device::scale(request.dtype, into, into, count, request.postscale);
    return;
  }
  if (folds_whole_vectors(request))
    return adasum(request.dtype, into, sources, count, request.postscale);
  const bool averages = request.reduce_op == ReduceOp::kAverage;
  const double scale = averages ? request.postscale / divisor_of(request, size) : request.postscale;
  device::fold(request.dtype, plain(request.reduce_op), into, sources, count, scale);
}

void fold_partial(const OpRequest& request, std::byte* into,
                  std::span<const std::byte* const> sources, uint64_t count) {
  CORRO_CHECK(!folds_at_once(request), "a part of an average of integers may not fit");
  if (folds_whole_vectors(request)) return adasum(request.dtype, into, sources, count, 1);
  device::fold(request.dtype, plain(request.reduce_op), into, sources, count, 1);
}

void copy_contribution(const OpRequest& request, std::byte* into, const std::byte* from,
                       uint64_t count) {
  if (const double scale = input_scale(request); scale != 1) {
    device::scale(request.dtype, into, from, count, scale);
  } else if (into != from && count > 0) {
    std::memcpy(into, from, count * size_of(request.dtype));
  }
}

void fill_identity(DType dtype, ReduceOp op, std::byte* into, uint64_t count) {
  switch (dtype) {
    case DType::kBool:  // min and product are "and".
      return fill<uint8_t>(into, count, op == ReduceOp::kMin || op == ReduceOp::kProduct);
    case DType::kU8:
      return fill(into, count, identity_of<uint8_t>(op));
    case DType::kI8:
      return fill(into, count, identity_of<int8_t>(op));
    case DType::kI16:
      return fill(into, count, identity_of<int16_t>(op));
    case DType::kI32:
      return fill(into, count, identity_of<int32_t>(op));
    case DType::kI64:
      return fill(into, count, identity_of<int64_t>(op));
    case DType::kF16:
      return fill(into, count, half_identity_of(op, 0x7C00, 0x3C00));
    case DType::kBF16:
      return fill(into, count, half_identity_of(op, 0x7F80, 0x3F80));
    case DType::kF32:
      return fill(into, count, identity_of<float>(op));
    case DType::kF64:
      return fill(into, count, identity_of<double>(op));
    case DType::kU16:
      return fill(into, count, identity_of<uint16_t>(op));
    case DType::kU32:
      return fill(into, count, identity_of<uint32_t>(op));
    case DType::kU64:
      return fill(into, count, identity_of<uint64_t>(op));
  }
}

}  // namespace corro::collective
