// Strongly connected components of a directed graph.
#pragma once

#include <cstdint>
#include <vector>

namespace corro::plan {

struct Components {
  /// The component of each node. An edge never leads to a component of a smaller number.
  std::vector<uint32_t> of;
  uint32_t count = 0;
};

/// `next[v]` are the ends of v's edges. Kosaraju's two walks, O(nodes + edges), no recursion.
[[nodiscard]] Components find_components(const std::vector<std::vector<uint32_t>>& next);

}  // namespace corro::plan
