#include "graph/cut.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "graph/ends.h"

namespace corro::graph {
namespace {

constexpr uint32_t kAbsent = std::numeric_limits<uint32_t>::max();

std::string way_to(const Plan& plan, const Crossing& crossing) {
  return fmt::format("{} to rank {}", plan.channels[crossing.channel].name, crossing.to);
}

/// Builds one rank's part, list by list.
class Cut {
 public:
  Cut(const Plan& plan, uint32_t rank)
      : plan_(plan),
        rank_(rank),
        crossings_(crossings_of(plan)),
        lane_here_(plan.lanes.size(), kAbsent),
        channel_here_(plan.channels.size(), kAbsent),
        arrives_(plan.channels.size()) {
    part_.plan.epoch = plan.epoch;
  }

  Part run() {
    add_lanes();
    add_channels();
    for (ServiceId id = 0; id < plan_.services.size(); ++id) {
      if (lane_here_[plan_.services[id].lane] != kAbsent) add_service(id);
    }
    for (const Crossing& crossing : crossings_) {
      if (crossing.from == rank_) add_half(crossing, Role::kSend);
      if (crossing.to == rank_) add_half(crossing, Role::kReceive);
    }
    return std::move(part_);
  }

 private:
  void add_lanes() {
    for (LaneId id = 0; id < plan_.lanes.size(); ++id) {
      const LaneSpec& lane = plan_.lanes[id];
      if (!std::binary_search(lane.ranks.begin(), lane.ranks.end(), rank_)) continue;
      lane_here_[id] =
          part_.plan.add_lane({.name = lane.name, .order = lane.order, .depth = lane.depth});
      part_.lanes.push_back(id);
    }
  }

  void add_channels() {
    std::vector<bool> leaves(plan_.channels.size());
    for (const Crossing& crossing : crossings_) {
      if (crossing.from == rank_) leaves[crossing.channel] = true;
      if (crossing.to == rank_) arrives_[crossing.channel] = true;
    }
    const auto is_here = [this](ServiceId end) { return is_on(plan_, end, rank_); };
    const std::vector<ChannelEnds> ends = ends_of(plan_);
    for (ChannelId id = 0; id < plan_.channels.size(); ++id) {
      const bool joins_here =
          is_here(ends[id].producers.front()) && std::ranges::any_of(ends[id].consumers, is_here);
      if (!joins_here && !leaves[id] && !arrives_[id]) continue;
      ChannelSpec channel = plan_.channels[id];
      channel.transfer = Duration::zero();
      if (leaves[id]) channel.initial = 0;
      channel_here_[id] = part_.plan.add_channel(std::move(channel));
      part_.channels.push_back(id);
    }
  }

  void add_service(ServiceId id) {
    ServiceSpec service = plan_.services[id];
    // A service of several ranks reads what comes from another rank there, where it runs as well.
    const bool alone = ranks_of(plan_, id).size() == 1;
    const auto elsewhere = [&](ChannelId channel) {
      return channel_here_[channel] == kAbsent || (!alone && arrives_[channel]);
    };
    std::erase_if(service.inputs, elsewhere);
    std::erase_if(service.outputs, elsewhere);
    for (auto* ends : {&service.inputs, &service.outputs}) {
      for (ChannelId& channel : *ends) channel = channel_here_[channel];
    }
    service.lane = lane_here_[service.lane];
    service.operation.reset();
    part_.plan.add_service(std::move(service));
    part_.services.push_back({.role = Role::kService, .number = id, .peer = 0});
  }

  void add_half(const Crossing& crossing, Role role) {
    const ChannelSpec& channel = plan_.channels[crossing.channel];
    const bool sends = role == Role::kSend;
    const std::string name = sends ? way_to(plan_, crossing)
                                   : fmt::format("{} from rank {}", channel.name, crossing.from);
    const std::vector<ChannelId> end{channel_here_[crossing.channel]};
    part_.plan.add_service({.name = name,
                            .lane = part_.plan.add_lane({.name = name}),
                            .every = plan_.services[crossing.producer].every,
                            .duration = channel.transfer,
                            .inputs = sends ? end : std::vector<ChannelId>{},
                            .outputs = sends ? std::vector<ChannelId>{} : end});
    part_.services.push_back(
        {.role = role, .number = crossing.channel, .peer = sends ? crossing.to : crossing.from});
  }

  const Plan& plan_;
  uint32_t rank_;
  std::vector<Crossing> crossings_;
  std::vector<LaneId> lane_here_;        ///< By lane of the plan: its number here.
  std::vector<ChannelId> channel_here_;  ///< By channel of the plan: its number here.
  std::vector<bool> arrives_;            ///< By channel of the plan: it comes from another rank.
  Part part_;
};

}  // namespace

Plan expand(const Plan& plan) {
  Plan whole = plan;
  whole.ranks = 1;
  for (LaneSpec& lane : whole.lanes) lane.ranks = {0};
  for (ServiceSpec& service : whole.services) service.operation.reset();
  for (const Crossing& crossing : crossings_of(plan)) {
    ChannelSpec arrived = plan.channels[crossing.channel];
    arrived.name += fmt::format(" at rank {}", crossing.to);
    arrived.transfer = Duration::zero();
    whole.channels[crossing.channel].initial = 0;
    whole.channels[crossing.channel].transfer = Duration::zero();
    const ChannelId far_end = whole.add_channel(std::move(arrived));
    const std::string name = way_to(plan, crossing);
    whole.add_service({.name = name,
                       .lane = whole.add_lane({.name = name}),
                       .every = plan.services[crossing.producer].every,
                       .duration = plan.channels[crossing.channel].transfer,
                       .inputs = {crossing.channel},
                       .outputs = {far_end}});
    for (const ServiceId consumer : crossing.consumers) {
      std::ranges::replace(whole.services[consumer].inputs, crossing.channel, far_end);
    }
  }
  return whole;
}

Part cut(const Plan& plan, uint32_t rank) {
  CORRO_CHECK(rank < plan.ranks, rank, plan.ranks);
  return Cut(plan, rank).run();
}

}  // namespace corro::graph
