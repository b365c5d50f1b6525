// Time as corro sees it: nanoseconds on a monotonic clock, injected so that tests run in virtual
// time.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace corro {

using Duration = std::chrono::nanoseconds;

/// A point on some monotonic clock; only differences mean anything. The virtual clock starts at
/// zero. Sums end at never(): a very long timeout is one without an end.
struct Time {
  Duration since_start{};
  friend auto operator<=>(const Time&, const Time&) = default;
  friend Time operator+(Time a, Duration d) {
    int64_t sum = 0;
    const bool over = __builtin_add_overflow(a.since_start.count(), d.count(), &sum);
    return over && d > Duration::zero() ? never() : Time{Duration(sum)};
  }
  friend Time operator-(Time a, Duration d) { return {a.since_start - d}; }
  friend Duration operator-(Time a, Time b) { return a.since_start - b.since_start; }
  static constexpr Time never() { return {Duration::max()}; }
};

/// Returns the process's monotonic time (CLOCK_MONOTONIC). Thread-safe.
[[nodiscard]] inline Time monotonic_now() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return {std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec)};
}

}  // namespace corro
