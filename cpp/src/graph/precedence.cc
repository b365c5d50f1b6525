#include "graph/precedence.h"

#include "graph/ends.h"

namespace corro::graph {
namespace {

void add_lane_edges(const Plan& plan, std::vector<Edge>& edges) {
  std::vector<std::vector<ServiceId>> members(plan.lanes.size());
  for (ServiceId id = 0; id < plan.services.size(); ++id)
    members[plan.services[id].lane].push_back(id);
  for (LaneId lane = 0; lane < plan.lanes.size(); ++lane) {
    if (plan.lanes[lane].order != LaneOrder::kAgreed) continue;
    const auto& turn = members[lane];
    for (size_t i = 0; i < turn.size(); ++i) {
      const bool last = i + 1 == turn.size();
      const ServiceSpec& service = plan.services[turn[i]];
      const ServiceId next = last ? turn.front() : turn[i + 1];
      const int64_t duration = plan.lanes[lane].depth == 1 ? service.duration.count() : 0;
      const int64_t behind = int64_t{service.lag} - int64_t{plan.services[next].lag};
      edges.push_back({turn[i], next, duration, behind + (last ? 1 : 0)});
    }
  }
}

}  // namespace

std::vector<Edge> edges_of(const Plan& plan) {
  std::vector<Edge> edges;
  const std::vector<ChannelEnds> ends = ends_of(plan);
  for (ServiceId id = 0; id < plan.services.size(); ++id) {
    const int64_t duration = plan.services[id].duration.count();
    edges.push_back({id, id, duration, 1});  // A service never overlaps itself.
    for (const ChannelId input : plan.services[id].inputs) {
      const ChannelSpec& channel = plan.channels[input];
      const ServiceId producer = ends[input].producers.front();
      edges.push_back(
          {producer, id, plan.services[producer].duration.count(), int64_t{channel.initial}});
      edges.push_back({id, producer, duration, int64_t{channel.slots} - int64_t{channel.initial}});
    }
  }
  add_lane_edges(plan, edges);
  return edges;
}

}  // namespace corro::graph
