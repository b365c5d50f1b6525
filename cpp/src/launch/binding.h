// Which processors each rank runs on.
#pragma once

#include <string>
#include <vector>

#include "agent/machine.h"
#include "base/status.h"
#include "launch/options.h"

namespace corro::launch {

struct Binding {
  /// Processors of each rank, ascending; empty: every rank runs anywhere.
  std::vector<std::vector<int>> ranks;
  std::string reason;
};

/// kCore: each rank gets its share of the physical cores, neighbours first (same NUMA node);
/// FAILED_PRECONDITION if there are fewer cores than ranks. kAuto: the same if each share has at
/// least two cores (a rank needs one for its data loader), else nothing is bound. Pure.
[[nodiscard]] Result<Binding> decide_binding(Bind bind, int ranks,
                                             std::vector<agent::Processor> processors);

}  // namespace corro::launch
