// Following: whom the agent follows, and how long it goes on when nobody leads.
//
// Its commander is there from the beginning on, or is dialled (commander.h). A dialled one has to
// say LEAD before it commands, and is dropped when it is silent for too long (silence.h). Most
// messages wait here until the agent takes them. Two kinds cannot wait, and are heard at once: those
// that say who leads, and credit for output.
//
// An agent that dials, and gets SIGTERM, says that its host is about to go. Its commander has the
// ranks leave, and fences it then. Without ranks and a commander it ends at once. If the commander
// does not live, as where a whole job is ended at once, nobody has the ranks leave: shortly after,
// they get SIGTERM themselves, and the agent ends when they have.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "agent/course_orders.h"
#include "agent/rank_streams.h"
#include "agent/reminder.h"
#include "agent/station.h"
#include "io/fd.h"

namespace corro::agent {

/// Loop-confined.
class Following {
 public:
  /// `guard` ends with the process that guards this one; none: the commander is on this host.
  Following(Station& station, CourseOrders& orders, RankStreams& streams, io::Fd guard)
      : station_(station), orders_(orders), streams_(streams), guard_(std::move(guard)) {}
  Following(const Following&) = delete;
  Following& operator=(const Following&) = delete;

  /// From now on it listens. `version`: of corro.
  Status open(const std::string& version);
  /// Drops a commander that is silent, and dials one if there is none. Ends the ranks of an agent
  /// that was asked to end if nobody else does.
  void find(Time now);
  /// The next message of the commander.
  [[nodiscard]] std::optional<Message> take();
  /// When find() or take() has something to do, or ends_at() is there, if nothing happens before.
  [[nodiscard]] Time due(Time now) const;
  /// Then the agent ends everything.
  [[nodiscard]] Time ends_at() const;
  /// Why it does: it dials commanders, and none has led for too long.
  [[nodiscard]] bool waited_in_vain() const {
    return station_.commander.dialling() && !unguarded_ && !station_.course.leaves();
  }
  /// Ranks were ended since the agent was asked to end, and nobody led.
  [[nodiscard]] bool ended_ranks() const { return ended_ranks_; }

 private:
  [[nodiscard]] Hello hello() const;
  Status listen_to_signals();
  void on_asked_to_end();
  [[nodiscard]] Time ends_ranks_at() const;
  void listen();
  void hear(Message message);
  void follow(const Subject& about, const Lead& lead);
  void on_refused(const Refused& refused);

  Station& station_;
  CourseOrders& orders_;
  RankStreams& streams_;
  std::string version_;
  Time alone_since_ = Time::never();                            ///< It has no commander.
  Reminder reminder_{kUnreachedFirst, kReminderPause, Time{}};  ///< Of that.
  Time asked_ = Time::never();                                  ///< To end.
  Time heard_{};  ///< The last word of a commander that was met.
  Time lost_{};   ///< When the last one was.
  bool ended_ranks_ = false;
  io::Fd guard_;
  io::Fd signals_;
  bool unguarded_ = false;       ///< Nobody would end it.
  std::deque<Message> unheard_;  ///< Of the commander.
};

}  // namespace corro::agent
