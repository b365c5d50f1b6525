// Stopping: when the ranks of a job are told to stop, and how hard.
//
//   running    nothing is wrong
//   failed     a rank has ended badly, or an elastic job cannot go on. For a short grace the others
//              may end by themselves, since their own words show who is to blame
//   looking    --timeout is over: for a moment the ranks are asked what they do
//   stopping   TERM to whoever still runs, and half a second later KILL. A second Ctrl-C comes here
//              directly, a third one kills
//
// A first Ctrl-C is passed on and nothing else: programs save what they have. Orders are taken from
// take(); without I/O and without a clock of its own.
#pragma once

#include <optional>

#include "base/clock.h"

namespace corro::launch {

/// Loop-confined.
class Stopping {
 public:
  enum class Order : uint8_t {
    kNone,
    kLook,      ///< Ask the ranks what they do; all_seen() once that is known.
    kTimedOut,  ///< --timeout is over, and what the ranks do is known.
    kRemind,    ///< The ranks were asked to stop by Ctrl-C a while ago.
    kTerminate,
    kKill,
  };

  void start(std::optional<Duration> timeout, Time now) {
    if (timeout) timeout_at_ = now + *timeout;
  }
  /// The next order that is due. To be called until there is none.
  [[nodiscard]] Order take(Time now);
  /// When one is due, if nothing happens before.
  [[nodiscard]] Time wake() const;

  /// A rank has ended badly. `leaving`: it saw another one leave, which may need longer and knows
  /// the job's exit status. Returns whether that is news: the job was not being ended before.
  bool on_failure(bool leaving, Time now);
  /// An elastic job cannot go on, whether it was asked to end or not.
  void on_no_way_on(Time now);
  /// A rank has given up waiting for another, which was asked to stop and does not.
  void on_given_up(Time now);
  /// Of the user. Returns whether the ranks get it. `any_run`: some rank runs.
  bool on_signal(int signal, bool any_run, Time now);
  /// Who has called corro.run() is gone: nobody wants the job, as after SIGTERM, and nobody waits.
  void on_caller_gone(bool any_run, Time now);
  /// All ranks have said what they do.
  void all_seen(Time now);

  /// The ranks go on as if nothing had happened.
  [[nodiscard]] bool undisturbed() const { return !stopping_ && stop_at_ == Time::never(); }
  [[nodiscard]] bool looking() const { return looking_; }
  /// TERM was ordered.
  [[nodiscard]] bool stopping() const { return stopping_; }
  /// The signal by which the user has asked for the end first.
  [[nodiscard]] std::optional<int> asked() const { return asked_; }
  /// Nothing that ranks have left behind gets a grace.
  [[nodiscard]] bool hard() const { return stopping_ || interrupts_ > 1; }
  /// The user wants out now: nothing is waited for any more.
  [[nodiscard]] bool impatient() const { return impatient_; }

 private:
  Time stop_at_ = Time::never();
  Time kill_at_ = Time::never();
  Time timeout_at_ = Time::never();
  Time remind_at_ = Time::never();
  bool looking_ = false;
  bool timed_out_ = false;  ///< kTimedOut is to be taken.
  bool stopping_ = false;
  bool impatient_ = false;
  int interrupts_ = 0;
  std::optional<int> asked_;
};

}  // namespace corro::launch
