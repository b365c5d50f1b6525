// Runs one job: says the agent what to start, shows the ranks' output, passes the user's signals
// on, and has all ranks stopped when one fails.
//
//   running    one loop over the agent's messages, signals and timers
//   failed     a rank has ended badly. For a short grace the others may end by themselves, since
//              their own words show who is to blame; their stderr is held back meanwhile
//   stopping   TERM to whoever still runs, and half a second later KILL. --timeout and a second
//              Ctrl-C come here directly, a third one kills
//   fencing    no rank runs: the agent ends what they left running, half a second later if nobody
//              asked for the end, and sends the output that is still on its way
//   ended      the verdict is made and printed
//
// A first Ctrl-C is passed on and nothing else: programs save what they have. While the screen
// takes nothing, the agent gets no credit, and the ranks' pipes hold them back.
#pragma once

#include <string>

#include "launch/plan.h"

namespace corro::launch {

/// Runs the job to its end and returns the exit status for the shell: the culprit's, 124 after
/// --timeout, 128 + signal if the user stopped it, 2 if the program could not be started. The
/// calling process has no threads, and runs nothing else. Leaves no process behind.
[[nodiscard]] int run_job(const LaunchPlan& plan, const std::string& version);

}  // namespace corro::launch
