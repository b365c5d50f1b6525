// Opening: all that is done before ranks run.
//
//   meeting       where other hosts take part: until all is known that their ranks need
//                 (meeting.h). Each agent has to answer in time; what --sync sends is shown. A job
//                 that goes on where another coordinator has led it has no meeting
//   handing over  what corro.run() has the ranks do goes to every host, piece by piece: none keeps
//                 another waiting long
//   ready         ranks can be started
//
//   opening.meet(now);
//   while (!opening.ready()) {
//     if (opening.waits()) ... turn the loop
//     CORRO_TRY(opening.advance());
//   }
//   opening.start_ranks();
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/job.h"
#include "launch/leadership.h"

namespace corro::launch {

/// Loop-confined. All that it borrows outlives it.
class Opening {
 public:
  /// `before`: of a job that goes on.
  Opening(Job& job, const Leadership& leadership, std::optional<JobRecord> before)
      : job_(job), leadership_(leadership), before_(std::move(before)) {}

  /// The meeting begins, if there is one.
  void meet(Time now);
  [[nodiscard]] bool ready() const { return ready_; }
  /// advance() has something to do only after a turn of the loop.
  [[nodiscard]] bool waits() const { return meets() || job_.meeting.busy() || sends_; }
  /// Takes the next step. Blocks for the caller, which sends without waiting for anything. Fails
  /// where a host cannot take part, with DEADLINE_EXCEEDED for one that does not answer, with
  /// CANCELLED if the user has ended the job, and with ABORTED if the lead is lost.
  [[nodiscard]] Status advance();
  /// Has the course begin the job, or go on with it.
  void start_ranks();

  /// A host has said what it lacks: it answers again once it has that.
  void wait_longer(Time now);
  /// For so long the launcher was stopped: nobody had to answer.
  void excuse(Duration stopped);
  /// When advance() has something to do, if nothing is heard before.
  [[nodiscard]] Time deadline() const {
    return meets() && job_.course.refused().empty() ? deadline_ : Time::never();
  }

 private:
  [[nodiscard]] bool meets() const { return !job_.meeting.done(); }
  Status check() const;
  Status advance_meeting();
  void give_up(const AgentLink& silent);
  Status hand_over_piece();
  void show_sync();

  Job& job_;
  const Leadership& leadership_;
  const std::optional<JobRecord> before_;
  Time deadline_ = Time::never();  ///< Of hosts that have to answer.
  std::vector<std::string> call_;  ///< Its pieces, for hosts that come later.
  bool sends_ = false;             ///< A piece is on its way to the agents.
  bool ready_ = false;
};

}  // namespace corro::launch
