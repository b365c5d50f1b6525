// WaitTimer: counts the time in which a thread of the program is inside of a blocking call.
#pragma once

#include "base/clock.h"
#include "obs/step_log.h"

namespace corro::runtime {

/// Counts from its construction to its end. Borrows the log.
class WaitTimer {
 public:
  explicit WaitTimer(const obs::StepLog& log) : log_(log) {}
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;
  ~WaitTimer() { log_.add_wait(monotonic_now() - began_); }

 private:
  const obs::StepLog& log_;
  const Time began_ = monotonic_now();
};

}  // namespace corro::runtime
