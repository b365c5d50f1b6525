// Runs one job, from its plan to its exit status. How that goes on: launcher.h.
#pragma once

#include <string>

#include "launch/plan.h"
#include "launch/standalone.h"

namespace corro::launch {

/// In the place of a status: a coordinator has lost its lead.
inline constexpr int kLeadLost = -1;

/// Runs the job to its end and returns the exit status for the shell: the culprit's, 124 after
/// --timeout, 128 + signal if the user stopped it, 2 if the program could not be started. The
/// calling process has no threads, and runs nothing else. Leaves no process behind.
[[nodiscard]] int run_job(const LaunchPlan& plan, const std::string& version,
                          Standalone* standalone = nullptr);

}  // namespace corro::launch
