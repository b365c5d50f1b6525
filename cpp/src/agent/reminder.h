// Reminder: when people are told of something that lasts: once after a while, and seldom after that.
#pragma once

#include "base/clock.h"

namespace corro::agent {

/// Without a clock of its own. Loop-confined.
class Reminder {
 public:
  Reminder(Duration first, Duration pause, Time now)
      : first_(first), pause_(pause), due_(now + first) {}

  /// It does not last any more, or begins now.
  void reset(Time now) { due_ = now + first_; }
  /// Whether people are to be told now.
  [[nodiscard]] bool take(Time now) {
    if (now < due_) return false;
    due_ = now + pause_;
    return true;
  }
  [[nodiscard]] Time due() const { return due_; }

 private:
  Duration first_;
  Duration pause_;
  Time due_;
};

/// Of whoever cannot reach the one that it dials.
inline constexpr Duration kUnreachedFirst = std::chrono::seconds(5);
/// Of whoever waits for others to come.
inline constexpr Duration kAbsentFirst = std::chrono::seconds(30);
inline constexpr Duration kReminderPause = std::chrono::minutes(1);

}  // namespace corro::agent
