// The optimum of an instance in Piper's format.
#pragma once

#include "base/status.h"
#include "plan/partition/partition.h"

namespace corro::plan {

/// RESOURCE_EXHAUSTED and FAILED_PRECONDITION as solve() in partition.h; messages without a name.
[[nodiscard]] Result<PartitionResult> solve_piper(const PiperInstance& instance);

}  // namespace corro::plan
