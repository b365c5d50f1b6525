// Launcher: runs one job: says the agents what to start, shows the ranks' output, passes the user's
// signals on, and has all ranks stopped when one fails.
//
//   opening    all that is done before ranks run (opening.h). Where hosts that are discovered cannot
//              be used, and the others are enough, it ends, and the next launcher begins anew
//   running    one loop over the agents' messages, signals and timers. What follows from them is
//              JobCourse's; it is carried out here. While the job is being ended, the ranks' stderr
//              is held back
//   fencing    no rank runs: the agents end what they left running, half a second later if nobody
//              asked for the end, and send the output that is still on its way
//   ended      the verdict is made and printed (last_word.h)
//
// It turns the loop, and keeps the times. Its parts bring the course what happens, and carry out
// what it orders:
//
//   Hearing         what agents say, and their loss (hearing.h)
//   UserRequests    signals, questions of commands, the end of the caller (user_requests.h)
//   RankInput       what the user types, for rank 0 (rank_input.h)
//   JobOrders       what the course orders (job_orders.h)
//   Leadership      whether this launcher may act, and the job's record (leadership.h)
//   DialledAgents   agents that dial (dialled_agents.h)
//
// All of them work on one Job (job.h). None knows the launcher.
//
// A standalone coordinator is a launcher whose agents dial it (agents.h). It leads, or ends at once,
// and leaves the job to whoever leads then (lead.h). It may go on with a job that another one has
// led: there is no meeting then.
//
// While the screen takes nothing, the agents get no credit, and the ranks' pipes hold them back.
#pragma once

#include <signal.h>

#include <functional>
#include <optional>
#include <string>

#include "launch/dialled_agents.h"
#include "launch/hearing.h"
#include "launch/job.h"
#include "launch/job_orders.h"
#include "launch/leadership.h"
#include "launch/opening.h"
#include "launch/progress.h"
#include "launch/rank_input.h"
#include "launch/standalone.h"
#include "launch/user_requests.h"

namespace corro::launch {

/// Loop-confined. Moves no more: the loop and the agents call its parts.
class Launcher {
 public:
  /// `standalone`: null where agents are started. Both outlive this.
  Launcher(Job& job, Standalone* standalone);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Runs the job to its end; once. `heard`: of block_signals(). As run_job() returns; none: it has
  /// not begun, and is to begin anew with the plan of Job::others.
  [[nodiscard]] std::optional<int> run(const sigset_t& heard);

 private:
  Status open(const sigset_t& heard);
  Status listen(const sigset_t& heard);
  void fence();
  int leave();
  void flush_screen();

  void step();
  [[nodiscard]] Time wake() const;
  void on_timers(Time now);
  void show_progress(Time now);
  void look(Time now);
  void show_end(const Ending& ending);

  // Each borrows those before it.
  Job& job_;
  Standalone* const standalone_;
  Leadership leadership_;
  RankInput input_;
  ProgressWatch progress_;
  JobOrders orders_;
  Opening opening_;
  Hearing hearing_;
  UserRequests user_;
  std::optional<DialledAgents> dialled_;          ///< None: agents are started.
  std::function<void(const std::string&)> show_;  ///< Null: nobody looks at the progress.
  Time look_at_ = Time::never();
  Time give_up_at_ =
      Time::never();  ///< On a screen that takes nothing, and on who watches the end.
};

}  // namespace corro::launch
