// Lists of hosts as Slurm writes them: "node[01-03,7],gpu1".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace corro {

/// Returns the hosts of a compressed list in their order, with zeros in front of numbers kept, and
/// "rack[1-2]n[1-2]" as all four. INVALID_ARGUMENT where a bracket or a range is broken, or there
/// are more than 65536. Pure.
[[nodiscard]] Result<std::vector<std::string>> expand_node_list(std::string_view text);

}  // namespace corro
