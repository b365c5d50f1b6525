// The precedence edges of a plan: which firing has to wait for which. Internal.
//
// Where all services fire equally often, a service is a node. Where one fires once in several
// generations, the plan is unrolled: a step is as many generations as its slowest service takes, and
// each firing of a step is a node.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/plan.h"

namespace corro::graph {

/// Start of `to` in step s + tokens comes no earlier than start of `from` in s, plus `duration`. Less
/// than no tokens: it waits for a later step.
struct Edge {
  size_t from = 0;
  size_t to = 0;
  int64_t duration = 0;
  int64_t tokens = 0;
};

struct Precedence {
  std::vector<ServiceId> services;  ///< By node.
  std::vector<Edge> edges;
};

/// Edges of channels (data forth, free slots back), of lanes in agreed order, and of each service
/// to itself. Requires a well formed plan of one rank.
[[nodiscard]] Precedence precedence_of(const Plan& plan);

}  // namespace corro::graph
