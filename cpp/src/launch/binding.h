// Which processors each rank runs on.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"

namespace corro::launch {

/// One logical processor that this process may use.
struct Processor {
  int id = 0;
  int core = 0;  ///< Lowest processor of the same physical core.
  int package = 0;
  int node = 0;  ///< NUMA node.
};

struct Binding {
  /// Processors of each rank, ascending; empty: every rank runs anywhere.
  std::vector<std::vector<int>> ranks;
  std::string reason;
};

/// kCore: each rank gets its share of the physical cores, neighbours first (same NUMA node);
/// FAILED_PRECONDITION if there are fewer cores than ranks. kAuto: the same if each share has at
/// least two cores (a rank needs one for its data loader), else nothing is bound. Pure.
[[nodiscard]] Result<Binding> decide_binding(Bind bind, int ranks,
                                             std::vector<Processor> processors);

/// Writes processors as "0-3,8".
[[nodiscard]] std::string format_processors(const std::vector<int>& processors);

}  // namespace corro::launch
