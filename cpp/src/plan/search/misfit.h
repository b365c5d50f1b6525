// What to say where no plan fits into the devices' memory: by how much, where, and what would help.
#pragma once

#include <vector>

#include "base/status.h"
#include "plan/search/decision.h"
#include "plan/search/stage_search.h"

namespace corro::plan {

/// The shapes that need least memory, a few of them: what can be sharded or moved is, and
/// micro-batches are as small as they can be.
[[nodiscard]] std::vector<JobShape> smallest_shapes(const Request& request,
                                                    const std::vector<Pool>& pools,
                                                    StageSearch& search);

/// RESOURCE_EXHAUSTED with one line: of these, which fit in no way, the first says by how much it
/// does not, and what would help was tried. INVALID_ARGUMENT if there are none.
[[nodiscard]] Status does_not_fit(const Request& request, const std::vector<Pool>& pools,
                                  StageSearch& search, const std::vector<JobShape>& smallest);

}  // namespace corro::plan
