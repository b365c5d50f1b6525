// For tests: random plans that are live by construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "graph/ends.h"
#include "graph/plan.h"

namespace corro::graph {

class RandomPlan {
 public:
  explicit RandomPlan(std::mt19937_64& random, uint32_t ranks = 1) : random_(random) {
    plan_.ranks = ranks;
  }

  Plan make() {
    const uint32_t lanes = plan_.ranks + upto(4);
    for (uint32_t i = 0; i < lanes; ++i) add_lane(i);
    const uint32_t services = 2 + upto(12);
    for (uint32_t i = 0; i < services; ++i) add_service(i);
    const uint32_t channels = 1 + upto(2 * services);
    for (uint32_t i = 0; i < channels; ++i) add_channel();
    return std::move(plan_);
  }

 private:
  uint32_t upto(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void add_lane(uint32_t number) {
    LaneSpec lane{.name = fmt::format("lane{}", number),
                  .order = upto(3) == 0 ? LaneOrder::kAgreed : LaneOrder::kPriority,
                  .depth = 1 + upto(3),
                  .ranks = {number % plan_.ranks}};
    if (number >= plan_.ranks && plan_.ranks > 1) {
      lane.order = LaneOrder::kAgreed;
      lane.ranks.clear();
      for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
        if (upto(2) == 0) lane.ranks.push_back(rank);
      }
      if (lane.ranks.empty()) lane.ranks = {upto(plan_.ranks)};
    }
    plan_.add_lane(std::move(lane));
  }

  void add_service(uint32_t number) {
    const LaneId lane = upto(static_cast<uint32_t>(plan_.lanes.size()));
    const ServiceId id = plan_.add_service({.name = fmt::format("s{}", number),
                                            .lane = lane,
                                            .priority = static_cast<int32_t>(upto(4)),
                                            .duration = Duration(upto(20))});
    const bool agreed = plan_.lanes[lane].order == LaneOrder::kAgreed;
    if (plan_.lanes[lane].ranks.size() > 1 || (agreed && upto(2) == 0)) {
      plan_.services[id].operation = operation(plan_.lanes[lane].ranks);
    }
  }

  OperationSpec operation(const std::vector<uint32_t>& ranks) {
    OperationSpec operation{.kind = static_cast<OpKind>(upto(9))};
    if (operation.kind == OpKind::kBarrier) return operation;
    operation.dtype = static_cast<DType>(upto(kDTypeCount));
    operation.count = upto(1000);
    if (reduces(operation.kind)) operation.reduce_op = static_cast<ReduceOp>(upto(kReduceOpCount));
    if (has_root(operation.kind)) {
      operation.root = ranks[upto(static_cast<uint32_t>(ranks.size()))];
    }
    return operation;
  }

  /// Tokens go on every edge against the order of the services.
  void add_channel() {
    const auto services = static_cast<uint32_t>(plan_.services.size());
    const uint32_t from = upto(services);
    uint32_t to = upto(services);
    const bool backward = to <= from;
    const uint32_t initial = backward ? 1 + upto(2) : upto(2);
    ChannelSpec channel{.name = fmt::format("c{}", plan_.channels.size()),
                        .slots = initial + 1 + upto(3),
                        .initial = initial,
                        .slot_bytes = 8};
    if (!can_join(from, to)) return;
    const bool crosses = !meet(from, to);
    if (crosses) channel.transfer = Duration(upto(10));
    const ChannelId id = plan_.add_channel(std::move(channel));
    plan_.services[from].outputs.push_back(id);
    plan_.services[to].inputs.push_back(id);
    if (backward || upto(3) != 0 || ++to == services || !can_join(from, to)) return;
    if (initial == 0 || crosses == !meet(from, to)) plan_.services[to].inputs.push_back(id);
  }

  bool meet(ServiceId a, ServiceId b) {
    return std::ranges::any_of(ranks_of(plan_, a),
                               [&](uint32_t rank) { return is_on(plan_, b, rank); });
  }
  bool can_join(ServiceId a, ServiceId b) {
    return meet(a, b) || (ranks_of(plan_, a).size() == 1 && ranks_of(plan_, b).size() == 1);
  }

  std::mt19937_64& random_;
  Plan plan_;
};

/// A plan whose services all fire for ever, whatever the durations.
inline Plan random_live_plan(std::mt19937_64& random, uint32_t ranks = 1) {
  return RandomPlan(random, ranks).make();
}

/// Gives services on lanes in agreed order lags, and channels slots for some of them: the plan may
/// stand still then.
inline void add_random_lags(std::mt19937_64& random, Plan& plan) {
  for (ServiceSpec& service : plan.services) {
    if (plan.lanes[service.lane].order == LaneOrder::kAgreed)
      service.lag = static_cast<uint32_t>(random() % 3);
  }
  for (ChannelSpec& channel : plan.channels) channel.slots += static_cast<uint32_t>(random() % 3);
}

/// Has services fire once in one, two or four generations, those of a lane in agreed order alike; the
/// plan may stand still then.
inline void add_random_rates(std::mt19937_64& random, Plan& plan) {
  for (LaneId lane = 0; lane < plan.lanes.size(); ++lane) {
    const uint32_t of_lane = 1U << random() % 3;
    for (ServiceSpec& service : plan.services) {
      if (service.lane != lane) continue;
      const bool agreed = plan.lanes[lane].order == LaneOrder::kAgreed;
      service.every = agreed ? of_lane : 1U << random() % 3;
    }
  }
  for (ChannelSpec& channel : plan.channels) {
    channel.slots += 3;  // As many as are taken at a time.
    channel.slot_bytes = 0;
  }
}

}  // namespace corro::graph
