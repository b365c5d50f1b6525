// Starts the ranks of a job on this host, carries their output, passes signals on, and stops them
// all when one fails.
//
//   running    one loop over descriptors and timers: output, ends of children, signals, the agent
//   failed     a rank has ended badly. For a short grace the others may end by themselves, since
//              their own words show who is to blame; their stderr is held back meanwhile
//   stopping   TERM to whoever still runs, and half a second later KILL. --timeout and a second
//              Ctrl-C come here directly, a third one kills
//   ended      no rank runs: what they left running is killed, half a second later if nobody asked
//              for the end; output still on its way is read; the verdict is made and printed
//
// A first Ctrl-C is passed on and nothing else: programs save what they have. When the front is
// gone everything is killed at once. While the screen takes nothing, nothing is read from the
// ranks, and their pipes hold them back.
#pragma once

#include "launch/front.h"
#include "launch/plan.h"

namespace corro::launch {

/// Runs the job to its end and returns the exit status for the shell: the culprit's, 124 after
/// --timeout, 128 + signal if the user stopped it, 2 if the program could not be started. To be
/// called in the supervisor process. Leaves no process behind.
[[nodiscard]] int supervise(const LaunchPlan& plan, const FrontLink& link);

}  // namespace corro::launch
