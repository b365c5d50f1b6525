// For tests: the least time that any schedule of a plan takes for a generation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "graph/plan.h"
#include "graph/precedence.h"

namespace corro::graph {

__extension__ using Wide = __int128;  // Products of two 64-bit quantities.

struct Ratio {
  Wide duration = 0;
  Wide tokens = 1;
};

/// Returns duration and tokens of a cycle whose ratio is above `bound`, or nothing when there is
/// none.
inline std::optional<Ratio> find_slower_cycle(const Precedence& graph, Ratio bound) {
  const size_t nodes = graph.services.size();
  std::vector<Wide> longest(nodes, 0);
  std::vector<const Edge*> via(nodes, nullptr);
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  size_t improved = kNone;
  for (size_t round = 0; round <= nodes; ++round) {
    improved = kNone;
    for (const Edge& edge : graph.edges) {
      const Wide weight = edge.duration * bound.tokens - edge.tokens * bound.duration;
      if (longest[edge.from] + weight <= longest[edge.to]) continue;
      longest[edge.to] = longest[edge.from] + weight;
      via[edge.to] = &edge;
      improved = edge.to;
    }
    if (improved == kNone) return std::nullopt;
  }
  for (size_t i = 0; i < nodes; ++i) improved = via[improved]->from;  // Now surely on the cycle.
  Ratio found{.duration = 0, .tokens = 0};
  size_t at = improved;
  do {
    found.duration += via[at]->duration;
    found.tokens += via[at]->tokens;
    at = via[at]->from;
  } while (at != improved);
  return found;
}

/// Returns a time that no schedule of the plan can beat, per generation: the maximum over cycles of
/// durations / tokens, and over lanes of durations / depth. Lanes in agreed order of depth one
/// reach it, priorities may not. Nanoseconds, exact up to the final division. Newton's iteration on
/// the ratio with Bellman-Ford as the cycle finder (Lawler, "Combinatorial optimization",
/// ch. 3.13). Requires a plan of one rank and check(plan).ok().
[[nodiscard]] inline double minimum_period_ns(const Plan& plan) {
  const Precedence graph = precedence_of(plan);
  Ratio slowest;
  while (const auto found = find_slower_cycle(graph, slowest)) slowest = *found;
  const uint32_t generations = step_of(plan);
  double step = static_cast<double>(slowest.duration) / static_cast<double>(slowest.tokens);
  for (LaneId lane = 0; lane < plan.lanes.size(); ++lane) {
    Wide work = 0;
    for (const ServiceSpec& service : plan.services) {
      if (service.lane == lane) work += service.duration.count() * (generations / service.every);
    }
    step = std::max(step, static_cast<double>(work) / plan.lanes[lane].depth);
  }
  return step / generations;
}

}  // namespace corro::graph
