// Runs one job: says the agent what to start, shows the ranks' output, passes the user's signals
// on, and has all ranks stopped when one fails.
//
//   meeting    where other hosts take part: until all is known that their ranks need (meeting.h)
//   running    one loop over the agents' messages, signals and timers. What follows from them is
//              JobCourse's; it is carried out here. While the job is being ended, the ranks' stderr
//              is held back
//   fencing    no rank runs: the agents end what they left running, half a second later if nobody
//              asked for the end, and send the output that is still on its way
//   ended      the verdict is made and printed
//
// While the screen takes nothing, the agents get no credit, and the ranks' pipes hold them back.
#pragma once

#include <string>

#include "launch/plan.h"

namespace corro::launch {

/// Runs the job to its end and returns the exit status for the shell: the culprit's, 124 after
/// --timeout, 128 + signal if the user stopped it, 2 if the program could not be started. The
/// calling process has no threads, and runs nothing else. Leaves no process behind.
[[nodiscard]] int run_job(const LaunchPlan& plan, const std::string& version);

}  // namespace corro::launch
