// How a rank of this host is started.
#pragma once

#include "agent/worker.h"
#include "launch/plan.h"

namespace corro::launch {

/// Asks for a terminal where the launcher's own streams are one and show this rank as it is.
[[nodiscard]] agent::WorkerSpec worker_spec(const LaunchPlan& plan, int rank);

}  // namespace corro::launch
