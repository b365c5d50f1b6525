#include "graph/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "graph/ends.h"
#include "graph/executor.h"
#include "graph/random_plan.h"
#include "graph/virtual_lanes.h"

namespace corro::graph {
namespace {

using ::testing::HasSubstr;

/// When each firing began and ended, by name and micro-batch.
using Times = std::map<std::pair<std::string, uint32_t>, std::pair<int64_t, int64_t>>;

struct Trace {
  Times times;
  bool reached = true;
};

Trace run_whole(const Plan& plan, uint32_t micro_batches) {
  Trace run;
  const Plan whole = expand(plan);
  VirtualLanes lanes(whole, {.observer = [&run](const VirtualFiring& firing) {
                       run.times[{std::string(firing.name), firing.generation.micro}] = {
                           firing.start.since_start.count(), firing.end.since_start.count()};
                     }});
  auto executor = Executor::create(whole, lanes.lanes());
  CORRO_CHECK(executor.ok(), executor.status().to_string());
  (*executor)->run_until(micro_batches);
  lanes.run(**executor);
  run.reached = (*executor)->reached();
  return run;
}

/// Every rank's part in an executor of its own, on one virtual clock. What several ranks do
/// together begins once all of them have fired it: a collective on all its ranks, a transfer once
/// the sender has fired its half and the receiver, which thereby grants the credit, has fired the
/// other.
class JoinedParts {
 public:
  explicit JoinedParts(const Plan& plan) : plan_(plan) {
    for (uint32_t rank = 0; rank < plan.ranks; ++rank) {
      parts_.push_back(cut(plan, rank));
      lanes_.push_back(std::make_unique<RankLane>(*this, rank));
    }
    for (uint32_t rank = 0; rank < plan.ranks; ++rank) {
      const std::vector<Lane*> lanes(parts_[rank].plan.lanes.size(), lanes_[rank].get());
      auto executor = Executor::create(parts_[rank].plan, lanes);
      CORRO_CHECK(executor.ok(), executor.status().to_string());
      executors_.push_back(std::move(executor).value());
    }
  }

  Trace run(uint32_t micro_batches) {
    for (const auto& executor : executors_) executor->run_until(micro_batches);
    go_on();
    for (const auto& executor : executors_) run_.reached &= executor->reached();
    return std::move(run_);
  }

  /// Lets some ranks run all stretches at once, the others one when all that can happen has.
  bool run_stretches(const std::vector<uint32_t>& ends) {
    bool reached = true;
    for (const uint32_t end : ends) {
      for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
        if (rank % 2 == 0) executors_[rank]->run_until(end);
        if (rank % 2 == 1 && end == ends.front())
          for (const uint32_t each : ends) executors_[rank]->run_until(each);
      }
      go_on();
    }
    for (const auto& executor : executors_) reached &= executor->reached();
    return reached;
  }

  /// What a rank has started on a lane of the plan, in order: service and micro-batch.
  [[nodiscard]] const std::vector<std::pair<ServiceId, uint32_t>>& order(uint32_t rank,
                                                                         LaneId lane) {
    return orders_[{rank, lane}];
  }

  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }

 private:
  void go_on() {
    poll_all();
    while (!running_.empty()) {
      now_ = std::ranges::min_element(running_, {}, &Running::end)->end;
      const auto ended = std::stable_partition(running_.begin(), running_.end(),
                                               [this](const Running& r) { return r.end > now_; });
      const std::vector<Running> ends(ended, running_.end());
      running_.erase(ended, running_.end());
      for (const Running& end : ends) {
        for (const auto& [rank, ticket] : end.firings) executors_[rank]->complete(ticket);
      }
      poll_all();
    }
  }

  struct RankLane final : Lane {
    RankLane(JoinedParts& owner, uint32_t rank) : owner_(&owner), rank_(rank) {}
    void start(Time, const Work& work) override { owner_->begin(rank_, work); }
    JoinedParts* owner_;
    uint32_t rank_;
  };
  using Firings = std::vector<std::pair<uint32_t, Ticket>>;
  struct Running {
    Time end;
    Firings firings;
  };
  /// What names it on the wire: service or channel, the receiving rank, and the generation.
  using Key = std::tuple<bool, uint32_t, uint32_t, uint32_t>;

  void poll_all() {
    for (const auto& executor : executors_) executor->poll(now_);
  }

  void begin(uint32_t rank, const Work& work) {
    const PartService& service = parts_[rank].services[work.firing.ticket.task];
    const bool half = service.role != Role::kService;
    if (!half)
      orders_[{rank, plan_.services[service.number].lane}].emplace_back(
          service.number, work.firing.generation.micro);
    const uint32_t to = !half ? 0 : service.role == Role::kReceive ? rank : service.peer;
    const Key key{half, service.number, to, work.firing.generation.micro};
    Firings& firings = waiting_[key];
    firings.emplace_back(rank, work.firing.ticket);
    if (firings.size() < (half ? 2 : ranks_of(plan_, service.number).size())) return;
    const std::string name =
        half ? fmt::format("{} to rank {}", plan_.channels[service.number].name, to)
             : plan_.services[service.number].name;
    const Time end = now_ + work.duration;
    run_.times[{name, std::get<3>(key)}] = {now_.since_start.count(), end.since_start.count()};
    running_.push_back({end, std::move(firings)});
    waiting_.erase(key);
  }

  Plan plan_;
  std::vector<Part> parts_;
  std::vector<std::unique_ptr<RankLane>> lanes_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::map<Key, Firings> waiting_;
  std::map<std::pair<uint32_t, LaneId>, std::vector<std::pair<ServiceId, uint32_t>>> orders_;
  std::vector<Running> running_;
  Time now_;
  Trace run_;
};

/// F0 on rank 0 sends to F1 on rank 1; both ranks' gradients are reduced together.
Plan two_ranks() {
  Plan plan;
  plan.ranks = 2;
  const LaneId first = plan.add_lane({.name = "gpu0", .ranks = {0}});
  const LaneId second = plan.add_lane({.name = "gpu1", .ranks = {1}});
  const LaneId all = plan.add_lane({.name = "dp", .order = LaneOrder::kAgreed, .ranks = {0, 1}});
  const ChannelId data =
      plan.add_channel({.name = "data", .slots = 2, .slot_bytes = 8, .transfer = Duration(5)});
  const ChannelId left = plan.add_channel({.name = "left"});
  const ChannelId right = plan.add_channel({.name = "right"});
  const ChannelId reduced = plan.add_channel({.name = "reduced"});
  plan.add_service(
      {.name = "F0", .lane = first, .duration = Duration(10), .outputs = {data, left}});
  plan.add_service({.name = "F1",
                    .lane = second,
                    .duration = Duration(20),
                    .inputs = {data},
                    .outputs = {right}});
  plan.add_service(
      {.name = "reduce",
       .lane = all,
       .duration = Duration(3),
       .inputs = {left, right},
       .outputs = {reduced},
       .operation = OperationSpec{.kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = 4}});
  plan.add_service({.name = "step0", .lane = first, .inputs = {reduced}});
  plan.add_service({.name = "step1", .lane = second, .inputs = {reduced}});
  return plan;
}

TEST(Expand, PutsATransferBetweenTwoRanks) {
  const Plan whole = expand(two_ranks());
  ASSERT_TRUE(check(whole).ok()) << check(whole).to_string();
  EXPECT_EQ(whole.ranks, 1U);
  ASSERT_EQ(whole.services.size(), 6U);
  const ServiceSpec& transfer = whole.services.back();
  EXPECT_EQ(transfer.name, "data to rank 1");
  EXPECT_EQ(transfer.duration, Duration(5));
  EXPECT_EQ(transfer.lane, whole.lanes.size() - 1) << "a lane of its own";
  EXPECT_EQ(transfer.inputs, std::vector<ChannelId>{0});
  EXPECT_EQ(transfer.outputs, whole.services[1].inputs);
  EXPECT_EQ(whole.channels[transfer.outputs[0]].slots, 2U);
  EXPECT_EQ(slot_bytes(whole), 32U) << "a ring on either rank";
}

TEST(Expand, LeavesAPlanOfOneRankAsItIs) {
  std::mt19937_64 random(1);
  Plan plan = random_live_plan(random);
  for (ServiceSpec& service : plan.services) service.operation.reset();
  EXPECT_EQ(hash_of(expand(plan)), hash_of(plan));
}

TEST(Expand, FilledSlotsLieOnTheReceiversRank) {
  Plan plan = two_ranks();
  plan.channels[0].initial = 1;
  const Plan whole = expand(plan);
  EXPECT_EQ(whole.channels[0].initial, 0U);
  EXPECT_EQ(whole.channels.back().initial, 1U);
  const Times times = run_whole(plan, 1).times;
  EXPECT_EQ(times.at({"F1", 0}).first, 0) << "readable at once, before any transfer";
}

TEST(Cut, GivesARankItsServicesChannelsAndHalves) {
  const Part part = cut(two_ranks(), 1);
  ASSERT_TRUE(check(part.plan).ok()) << check(part.plan).to_string();
  EXPECT_EQ(part.lanes, (std::vector<LaneId>{1, 2}));
  EXPECT_EQ(part.channels, (std::vector<ChannelId>{0, 2, 3})) << "data, right, reduced";
  ASSERT_EQ(part.services.size(), 4U);
  EXPECT_EQ(part.services[1].number, 2U) << "reduce";
  EXPECT_EQ(part.plan.services[1].inputs, std::vector<ChannelId>{1}) << "of rank 1 alone";
  const PartService& half = part.services[3];
  EXPECT_EQ(half.role, Role::kReceive);
  EXPECT_EQ(half.number, 0U) << "the channel's number in the whole plan";
  EXPECT_EQ(half.peer, 0U);
  EXPECT_EQ(part.plan.services[3].outputs, std::vector<ChannelId>{0});
  EXPECT_EQ(part.plan.services[3].name, "data from rank 0");
}

TEST(Cut, ASenderWaitsForTheReceiversSlot) {
  Plan plan = two_ranks();
  plan.channels[0].slots = 1;
  const Times times = JoinedParts(plan).run(3).times;
  EXPECT_EQ(times.at({"data to rank 1", 0}), std::pair(int64_t{10}, int64_t{15}));
  EXPECT_EQ(times.at({"F0", 1}).second, 48)
      << "its slot is the transfer's until 15; its gradient's "
         "until the reduction ends at 38";
  EXPECT_EQ(times.at({"data to rank 1", 1}).first, 48);
}

void expect_parts_cover(const Plan& plan, const std::vector<Part>& parts) {
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, bool>> halves;  // channel, from, to, sends
  std::set<std::tuple<ServiceId, ChannelId, bool>> ends, wanted;
  std::map<ServiceId, std::vector<uint32_t>> services;
  std::map<LaneId, std::vector<uint32_t>> lanes;
  for (uint32_t rank = 0; rank < plan.ranks; ++rank) {
    const Part& part = parts[rank];
    ASSERT_TRUE(check(part.plan).ok()) << check(part.plan).to_string();
    ASSERT_EQ(part.services.size(), part.plan.services.size());
    ASSERT_EQ(part.channels.size(), part.plan.channels.size());
    for (const LaneId lane : part.lanes) lanes[lane].push_back(rank);
    for (size_t i = 0; i < part.services.size(); ++i) {
      const auto& [role, number, peer] = part.services[i];
      if (role != Role::kService) {
        const bool sends = role == Role::kSend;
        const bool first =
            halves.emplace(number, sends ? rank : peer, sends ? peer : rank, sends).second;
        EXPECT_TRUE(first);
        continue;
      }
      services[number].push_back(rank);
      for (const ChannelId c : part.plan.services[i].inputs) {
        ends.emplace(number, part.channels[c], false);
      }
      for (const ChannelId c : part.plan.services[i].outputs) {
        ends.emplace(number, part.channels[c], true);
      }
    }
  }
  for (LaneId id = 0; id < plan.lanes.size(); ++id) EXPECT_EQ(lanes[id], plan.lanes[id].ranks);
  for (ServiceId id = 0; id < plan.services.size(); ++id) {
    EXPECT_EQ(services[id], ranks_of(plan, id));
    for (const ChannelId c : plan.services[id].inputs) wanted.emplace(id, c, false);
    for (const ChannelId c : plan.services[id].outputs) wanted.emplace(id, c, true);
  }
  EXPECT_EQ(ends, wanted);
  for (const auto& [channel, from, to, sends] : halves) {
    EXPECT_TRUE(halves.contains({channel, from, to, !sends})) << "halves come in pairs";
  }
  EXPECT_EQ(halves.size(), 2 * crossings_of(plan).size());
}

TEST(RandomParts, CoverThePlanAndFireExactlyWhenTheWholeDoes) {
  size_t transfers = 0, together = 0, stepping = 0;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Plan plan = random_live_plan(random, 1 + static_cast<uint32_t>(seed % 5));
    ASSERT_TRUE(check(plan).ok()) << check(plan).to_string();
    if (seed % 2 == 1) add_random_rates(random, plan);
    if (!check(plan).ok()) continue;
    stepping += seed % 2;
    JoinedParts joined(plan);
    expect_parts_cover(plan, joined.parts());
    const Trace whole = run_whole(plan, 12);
    const Trace parts = joined.run(12);
    EXPECT_TRUE(whole.reached);
    EXPECT_TRUE(parts.reached);
    ASSERT_EQ(parts.times, whole.times);
    transfers += crossings_of(plan).size();
    for (ServiceId id = 0; id < plan.services.size(); ++id)
      together += ranks_of(plan, id).size() > 1;
  }
  EXPECT_GT(transfers, 500U) << "the test sees channels between ranks";
  EXPECT_GT(together, 500U) << "and services of several";
  EXPECT_GT(stepping, 60U) << "and those that fire once in several generations";
}

/// What a lane in agreed order starts, by the definition, for stretches that end there.
std::vector<std::pair<ServiceId, uint32_t>> agreed_order(const Plan& plan, LaneId lane,
                                                         const std::vector<uint32_t>& ends) {
  std::vector<std::pair<ServiceId, uint32_t>> order;
  uint32_t first = 0;
  for (const uint32_t end : ends) {
    for (uint32_t round = first; round < end + 3; ++round) {
      for (ServiceId id = 0; id < plan.services.size(); ++id) {
        const ServiceSpec& service = plan.services[id];
        if (service.lane != lane || round < first + service.lag || round >= end + service.lag)
          continue;
        order.emplace_back(id, round - service.lag);
      }
    }
    first = end;
  }
  return order;
}

TEST(RandomParts, WithLagsStartInOneOrderOnAllRanksAndNeverStandStill) {
  const std::vector<uint32_t> ends{2, 3, 9, 12};
  size_t live = 0, ranks = 0, lagging = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Plan plan = random_live_plan(random, 1 + static_cast<uint32_t>(seed % 5));
    add_random_lags(random, plan);
    if (!check(plan).ok()) continue;
    ++live;
    ASSERT_EQ(JoinedParts(plan).run(12).times, run_whole(plan, 12).times);
    JoinedParts joined(plan);
    ASSERT_TRUE(joined.run_stretches(ends));
    for (LaneId lane = 0; lane < plan.lanes.size(); ++lane) {
      if (plan.lanes[lane].order != LaneOrder::kAgreed) continue;
      const auto wanted = agreed_order(plan, lane, ends);
      for (const uint32_t rank : plan.lanes[lane].ranks) {
        ASSERT_EQ(joined.order(rank, lane), wanted) << "rank " << rank;
        ++ranks;
      }
    }
    lagging += std::ranges::any_of(plan.services, [](const auto& s) { return s.lag > 0; });
  }
  EXPECT_GT(live, 100U) << "the test sees plans that run";
  EXPECT_GT(lagging, 60U) << "with lags";
  EXPECT_GT(ranks, 200U) << "on several ranks";
}

TEST(RandomParts, StandStillExactlyWhenTheWholeIsRefused) {
  int dead = 0;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Plan plan = random_live_plan(random, 1 + static_cast<uint32_t>(seed % 4));
    if (seed % 3 == 1) add_random_lags(random, plan);
    if (seed % 3 == 2) add_random_rates(random, plan);
    for (ChannelSpec& channel : plan.channels) {
      if (random() % 3 == 0) channel.initial = 0;
    }
    const Status status = check(plan);
    ASSERT_TRUE(status.ok() || status.code() == Code::kFailedPrecondition) << status.to_string();
    bool parts_live = true;
    for (uint32_t rank = 0; rank < plan.ranks; ++rank)
      parts_live &= check(cut(plan, rank).plan).ok();
    if (parts_live)
      EXPECT_EQ(JoinedParts(plan).run(40).reached, status.ok());
    else
      EXPECT_FALSE(status.ok()) << "a dead part is a dead plan";
    dead += status.ok() ? 0 : 1;
  }
  EXPECT_GT(dead, 50) << "the test sees both cases";
}

TEST(CheckOfSeveralRanks, FindsACycleThroughTwoRanks) {
  Plan plan = two_ranks();
  const ChannelId back = plan.add_channel({.name = "back"});
  plan.services[1].outputs.push_back(back);
  plan.services[0].inputs.push_back(back);
  const Status status = check(plan);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("F0 -> data to rank 1 -> F1 -> back to rank 0 -> F0"));
  plan.channels[back].initial = 1;
  EXPECT_TRUE(check(plan).ok());
  EXPECT_EQ(Executor::create(plan, {}).status().code(), Code::kInvalidArgument)
      << "an executor runs one rank's part";
}

TEST(CheckOfSeveralRanks, RefusesWhatCannotBeCut) {
  const auto refused = [](auto&& change, const char* words) {
    Plan plan = two_ranks();
    ASSERT_TRUE(check(plan).ok()) << check(plan).to_string();
    change(plan);
    EXPECT_EQ(check(plan).code(), Code::kInvalidArgument);
    EXPECT_THAT(check(plan).message(), HasSubstr(words));
  };
  refused([](Plan& p) { p.ranks = 0; }, "plan: ranks: must be from 1");
  refused([](Plan& p) { p.ranks = 1; }, "plan: lanes[1].ranks: must be one or more ranks from 0");
  refused([](Plan& p) { p.lanes[2].ranks = {1, 0}; }, "lanes[2].ranks");
  refused([](Plan& p) { p.lanes[2].ranks = {0, 0}; }, "lanes[2].ranks");
  refused([](Plan& p) { p.lanes[0].ranks = {}; }, "lanes[0].ranks");
  refused([](Plan& p) { p.lanes[2].order = LaneOrder::kPriority; }, "lanes[2].order");
  refused([](Plan& p) { p.services[2].operation.reset(); }, "services[2].operation: is missing");
  refused([](Plan& p) { p.services[0].operation = OperationSpec{}; }, "services[0].operation");
  refused([](Plan& p) { p.services[2].operation->kind = OpKind::kSend; }, "operation.kind");
  refused(
      [](Plan& p) {
        p.services[2].operation->kind = OpKind::kBroadcast;
        p.services[2].operation->root = 2;
      },
      "operation.root: must be a rank of lane \"dp\"");
  refused([](Plan& p) { p.services[2].operation->count = kMostCount + 1; }, "operation.count");
  refused([](Plan& p) { p.channels[1].transfer = Duration(1); }, "channels[1].transfer_ns");
  refused(
      [](Plan& p) {
        p.channels[0].initial = 1;
        p.services[3].inputs.push_back(0);
      },
      "channels[0].initial");
  refused(
      [](Plan& p) {
        p.ranks = 4;
        p.lanes[2].ranks = {2, 3};
      },
      "no rank in common");
}

}  // namespace
}  // namespace corro::graph
