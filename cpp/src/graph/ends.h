// The two ends of each channel: which services fill it and which read it.
#pragma once

#include <vector>

#include "graph/plan.h"

namespace corro::graph {

/// In plan order. A well formed plan has one producer and a consumer for each channel.
struct ChannelEnds {
  std::vector<ServiceId> producers;
  std::vector<ServiceId> consumers;
};

/// Returns the ends by channel. Requires that services name channels of the plan.
[[nodiscard]] std::vector<ChannelEnds> ends_of(const Plan& plan);

/// Returns the ranks of the service's lane. Requires that the service names a lane of the plan.
[[nodiscard]] inline const std::vector<uint32_t>& ranks_of(const Plan& plan, ServiceId id) {
  return plan.lanes[plan.services[id].lane].ranks;
}

/// Returns true if the service runs on the rank.
[[nodiscard]] bool is_on(const Plan& plan, ServiceId id, uint32_t rank);

/// How fast a consumer goes beside the producer of a channel; one of the two is 1.
struct Pace {
  uint32_t takes = 1;  ///< Slots that one firing takes.
  uint32_t reads = 1;  ///< Firings that read one slot.
};

/// Requires that one's `every` divides the other's.
[[nodiscard]] Pace pace_of(const Plan& plan, ServiceId producer, ServiceId consumer);

/// A channel's way to one rank that is not its producer's.
struct Crossing {
  ChannelId channel = 0;
  ServiceId producer = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  std::vector<ServiceId> consumers;  ///< Those on `to`.
};

/// Returns them by channel, then by rank. Requires a well formed plan.
[[nodiscard]] std::vector<Crossing> crossings_of(const Plan& plan);

}  // namespace corro::graph
