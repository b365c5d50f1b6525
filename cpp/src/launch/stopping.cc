#include "launch/stopping.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "io/signals.h"

namespace corro::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// From a failure to the end of every rank there is one second. These fit into it.
/// Ranks that fail in the same way, and one that others say is lost, end by themselves first.
constexpr Duration kFailureGrace = milliseconds(200);
constexpr Duration kLeavingGrace = milliseconds(400);
constexpr Duration kStopGrace = milliseconds(500);   ///< From TERM to KILL.
constexpr Duration kLookPatience = seconds(1);       ///< For what ranks do when time is over.
constexpr Duration kInterruptPatience = seconds(1);  ///< Until Ctrl-C needs an explanation.

bool is_due(Time& at, Time now) { return at <= now && std::exchange(at, Time::never()) <= now; }

}  // namespace

Stopping::Order Stopping::take(Time now) {
  if (is_due(timeout_at_, now) && !stopping_) {
    timed_out_ = std::exchange(looking_, true);
    if (!timed_out_) timeout_at_ = now + kLookPatience;
    if (!timed_out_) return Order::kLook;
  }
  if (std::exchange(timed_out_, false)) {
    stop_at_ = now;
    return Order::kTimedOut;
  }
  if (is_due(remind_at_, now) && !stopping_) return Order::kRemind;
  if (is_due(stop_at_, now) && !std::exchange(stopping_, true)) {
    kill_at_ = std::min(kill_at_, now + kStopGrace);
    return Order::kTerminate;
  }
  return is_due(kill_at_, now) ? Order::kKill : Order::kNone;
}

Time Stopping::wake() const { return std::min({stop_at_, kill_at_, timeout_at_, remind_at_}); }

bool Stopping::on_failure(bool leaving, Time now) {
  if (stopping_ || asked_) return false;
  stop_at_ = std::min(stop_at_, now + (leaving ? kLeavingGrace : kFailureGrace));
  return true;
}

void Stopping::on_no_way_on(Time now) {
  if (!stopping_) stop_at_ = std::min(stop_at_, now + kLeavingGrace);
}

void Stopping::on_given_up(Time now) {
  if (asked_ && !stopping_) stop_at_ = std::min(stop_at_, now + kFailureGrace);
}

bool Stopping::on_signal(int signal, bool any_run, Time now) {
  if (io::asks_to_stop(signal) && !asked_) asked_ = signal;
  if (signal == SIGINT && ++interrupts_ > 1) {
    stop_at_ = now;
    impatient_ = impatient_ || interrupts_ > 2;
    if (impatient_) kill_at_ = now;
    return false;
  }
  if (signal == SIGINT) remind_at_ = now + kInterruptPatience;
  impatient_ = impatient_ || (io::asks_to_stop(signal) && !any_run);
  return true;
}

void Stopping::on_caller_gone(bool any_run, Time now) {
  (void)on_signal(SIGTERM, any_run, now);
  stop_at_ = now;
}

void Stopping::all_seen(Time now) {
  if (looking_ && timeout_at_ != Time::never()) timeout_at_ = now;
}

}  // namespace corro::launch
