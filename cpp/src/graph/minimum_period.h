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
inline std::optional<Ratio> find_slower_cycle(const std::vector<Edge>& edges, size_t services,
                                              Ratio bound) {
  std::vector<Wide> longest(services, 0);
  std::vector<const Edge*> via(services, nullptr);
  constexpr ServiceId kNoService = std::numeric_limits<ServiceId>::max();
  ServiceId improved = kNoService;
  for (size_t round = 0; round <= services; ++round) {
    improved = kNoService;
    for (const Edge& edge : edges) {
      const Wide weight = edge.duration * bound.tokens - edge.tokens * bound.duration;
      if (longest[edge.from] + weight <= longest[edge.to]) continue;
      longest[edge.to] = longest[edge.from] + weight;
      via[edge.to] = &edge;
      improved = edge.to;
    }
    if (improved == kNoService) return std::nullopt;
  }
  for (size_t i = 0; i < services; ++i) improved = via[improved]->from;  // Now surely on the cycle.
  Ratio found{.duration = 0, .tokens = 0};
  ServiceId at = improved;
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
  const std::vector<Edge> edges = edges_of(plan);
  Ratio slowest;
  while (const auto found = find_slower_cycle(edges, plan.services.size(), slowest)) {
    slowest = *found;
  }
  double period = static_cast<double>(slowest.duration) / static_cast<double>(slowest.tokens);
  for (LaneId lane = 0; lane < plan.lanes.size(); ++lane) {
    Wide work = 0;
    for (const ServiceSpec& service : plan.services) {
      if (service.lane == lane) work += service.duration.count();
    }
    period = std::max(period, static_cast<double>(work) / plan.lanes[lane].depth);
  }
  return period;
}

}  // namespace corro::graph
