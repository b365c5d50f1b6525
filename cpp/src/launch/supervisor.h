// Starts the ranks of a job on this host, carries their output, passes signals on, and stops them
// all when one fails.
#pragma once

#include "launch/front.h"
#include "launch/plan.h"

namespace corro::launch {

/// Runs the job to its end and returns the exit status for the shell: the culprit's, 124 after
/// --timeout, 128 + signal if the user stopped it, 2 if the program could not be started. To be
/// called in the supervisor process. Leaves no process behind.
[[nodiscard]] int supervise(const LaunchPlan& plan, const FrontLink& link);

}  // namespace corro::launch
