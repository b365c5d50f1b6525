// The least of many values, by a bound below them that is convex.
//
//   const auto least = least_above_convex(1, 96, cut, lower, value);
//   if (least.at) { /* value(*least.at) is below cut, and no other is less */ }
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace corro::plan {

struct LeastValue {
  std::optional<uint32_t> at;  ///< Nothing if no value is below the cut.
  double value = 0;
  double bound = std::numeric_limits<double>::infinity();  ///< No value is less.
};

/// The least value(k) that is below `cut`, of all k in [first, last]. `lower(k)` is never above
/// value(k) and convex in k; infinity where there is no value, which may be for the first k alone.
/// Asks O(log(last - first)) bounds to find the least of them, then bounds and values outwards from
/// there until the bounds are no better.
template <typename Lower, typename Value>
[[nodiscard]] LeastValue least_above_convex(uint32_t first, uint32_t last, double cut,
                                            const Lower& lower, const Value& value) {
  constexpr double kNothing = std::numeric_limits<double>::infinity();
  LeastValue best{.at = {}, .value = cut};
  if (first > last) return best;
  uint32_t low = first;
  uint32_t high = last;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const double bound = lower(middle);
    const bool falls = bound == kNothing || lower(middle + 1) < bound;
    (falls ? low : high) = falls ? middle + 1 : middle;
  }
  best.bound = lower(low);
  const auto look_at = [&](uint32_t k) {
    if (!(lower(k) < best.value)) return false;
    const double here = value(k);
    if (here < best.value) {
      best.at = k;
      best.value = here;
    }
    return true;
  };
  for (uint32_t k = low; k <= last && look_at(k);) ++k;
  for (uint32_t k = low; k > first && look_at(k - 1);) --k;
  return best;
}

}  // namespace corro::plan
