// The precedence edges of a plan: which firing has to wait for which. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/plan.h"

namespace corro::graph {

/// Start of `to` in generation g + tokens comes no earlier than start of `from` in g, plus
/// `duration`. Less than no tokens: it waits for a later generation.
struct Edge {
  ServiceId from = 0;
  ServiceId to = 0;
  int64_t duration = 0;
  int64_t tokens = 0;
};

/// Edges of channels (data forth, free slots back), of lanes in agreed order, and of each service
/// to itself. Requires a well formed plan of one rank.
[[nodiscard]] std::vector<Edge> edges_of(const Plan& plan);

}  // namespace corro::graph
