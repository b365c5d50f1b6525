#include "collective/operation/fold.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
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
    default:
      return average<int64_t, WideSum>(into, sources, count, divisor);
  }
}

}  // namespace

void fold_final(const OpRequest& request, int32_t size, std::byte* into,
                std::span<const std::byte* const> sources, uint64_t count) {
  if (folds_at_once(request)) {
    average_integers(request.dtype, into, sources, count, size);
    if (request.postscale != 1) device::scale(request.dtype, into, into, count, request.postscale);
    return;
  }
  const bool averages = request.reduce_op == ReduceOp::kAverage;
  const double scale = averages ? request.postscale / size : request.postscale;
  device::fold(request.dtype, plain(request.reduce_op), into, sources, count, scale);
}

void fold_partial(const OpRequest& request, std::byte* into,
                  std::span<const std::byte* const> sources, uint64_t count) {
  CORRO_CHECK(!folds_at_once(request), "a part of an average of integers may not fit");
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
