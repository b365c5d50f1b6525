// Silence: how long an agent on another host waits for a word of its commander, which looks every
// second.
//
//   listening  from the connection on: kSilence after the last word the commander is gone
//   suspended  from SIGTSTP to SIGCONT: Ctrl-Z has stopped the commander with its ranks, and it
//              says nothing as long as the user likes
//
// What comes between SIGTSTP and the stop ends nothing: only SIGCONT does, or the connection's end.
// Without a clock of its own.
#pragma once

#include <csignal>

#include "base/clock.h"

namespace corro::agent {

/// How long one side hears nothing of the other, over a network, before it takes it for gone. Every
/// second the commander looks, and the agent answers.
inline constexpr Duration kSilence = std::chrono::seconds(10);

/// Loop-confined.
class Silence {
 public:
  /// `matters`: there is a network between. Else it lasts as long as the connection.
  Silence(bool matters, Time now) : matters_(matters), heard_(now) {}

  void hear(Time now) { heard_ = now; }
  /// The commander has passed on a signal to all ranks.
  void hear_signal(int number) {
    suspended_ = number == SIGTSTP || (suspended_ && number != SIGCONT);
  }
  /// When the commander is gone, if it says nothing before.
  [[nodiscard]] Time deadline() const {
    return matters_ && !suspended_ ? heard_ + kSilence : Time::never();
  }

 private:
  bool matters_;
  bool suspended_ = false;
  Time heard_;
};

}  // namespace corro::agent
