#include "base/stop.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace corro {

bool wait_for_stop(const std::stop_token& stop, Duration duration) {
  // The standard library's own sum of times overflows for the longest durations.
  constexpr Duration kMostAtOnce = std::chrono::hours(24);
  std::mutex mutex;
  std::condition_variable_any never_notified;
  std::unique_lock lock(mutex);
  for (Duration left = duration; left > Duration::zero() && !stop.stop_requested();) {
    const Duration now = std::min(left, kMostAtOnce);
    never_notified.wait_for(lock, stop, now, [] { return false; });
    left -= now;
  }
  return stop.stop_requested();
}

}  // namespace corro
