// The optimum of a max-load instance.
#pragma once

#include "base/status.h"
#include "plan/partition/partition.h"

namespace corro::plan {

/// RESOURCE_EXHAUSTED and FAILED_PRECONDITION as solve() in partition.h; messages without a name.
[[nodiscard]] Result<PartitionResult> solve_max_load(const MaxLoadInstance& instance);

}  // namespace corro::plan
