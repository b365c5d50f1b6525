#include "graph/ends.h"

#include <algorithm>
#include <map>
#include <utility>

namespace corro::graph {

std::vector<ChannelEnds> ends_of(const Plan& plan) {
  std::vector<ChannelEnds> ends(plan.channels.size());
  for (ServiceId id = 0; id < plan.services.size(); ++id) {
    for (const ChannelId output : plan.services[id].outputs) ends[output].producers.push_back(id);
    for (const ChannelId input : plan.services[id].inputs) ends[input].consumers.push_back(id);
  }
  return ends;
}

bool is_on(const Plan& plan, ServiceId id, uint32_t rank) {
  const std::vector<uint32_t>& ranks = ranks_of(plan, id);
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

Pace pace_of(const Plan& plan, ServiceId producer, ServiceId consumer) {
  const uint32_t fills = plan.services[producer].every;
  const uint32_t fires = plan.services[consumer].every;
  return {.takes = std::max(fires / fills, 1U), .reads = std::max(fills / fires, 1U)};
}

std::vector<Crossing> crossings_of(const Plan& plan) {
  std::vector<Crossing> crossings;
  if (plan.ranks == 1) return crossings;
  const std::vector<ChannelEnds> ends = ends_of(plan);
  for (ChannelId id = 0; id < plan.channels.size(); ++id) {
    const std::vector<uint32_t>& sources = ranks_of(plan, ends[id].producers.front());
    if (sources.size() > 1) continue;
    std::map<uint32_t, std::vector<ServiceId>> elsewhere;
    for (const ServiceId consumer : ends[id].consumers) {
      if (is_on(plan, consumer, sources.front())) continue;
      elsewhere[ranks_of(plan, consumer).front()].push_back(consumer);
    }
    for (auto& [rank, consumers] : elsewhere) {
      crossings.push_back(
          {id, ends[id].producers.front(), sources.front(), rank, std::move(consumers)});
    }
  }
  return crossings;
}

}  // namespace corro::graph
