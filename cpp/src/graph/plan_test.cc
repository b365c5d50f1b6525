#include "graph/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include <fmt/format.h>

#include "graph/executor.h"
#include "graph/minimum_period.h"
#include "graph/random_plan.h"
#include "graph/virtual_lanes.h"

namespace corro::graph {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Plan two_services(ChannelSpec forth, ChannelSpec back) {
  Plan plan;
  plan.add_lane({.name = "lane"});
  const ChannelId a = plan.add_channel(std::move(forth));
  const ChannelId b = plan.add_channel(std::move(back));
  plan.add_service({.name = "ping", .lane = 0, .inputs = {b}, .outputs = {a}});
  plan.add_service({.name = "pong", .lane = 0, .inputs = {a}, .outputs = {b}});
  return plan;
}

TEST(PlanCheck, RefusesACycleWithoutATokenAndNamesItsServices) {
  Plan plan = two_services({.name = "forth"}, {.name = "back"});
  plan.add_service({.name = "bystander", .lane = 0});
  const Status status = check(plan);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("ping -> pong -> ping"));
  EXPECT_THAT(status.message(), Not(HasSubstr("bystander")));
  EXPECT_EQ(Executor::create(plan, {}).status().code(), Code::kFailedPrecondition);
}

TEST(PlanCheck, OneTokenOnTheCycleIsEnough) {
  EXPECT_TRUE(check(two_services({.name = "forth"}, {.name = "back", .initial = 1})).ok());
}

TEST(PlanCheck, RefusesACycleWithoutAFreeSlot) {
  // Both channels full: each service waits for the other to read.
  const Plan plan = two_services({.name = "forth", .initial = 1}, {.name = "back", .initial = 1});
  EXPECT_EQ(check(plan).code(), Code::kFailedPrecondition);
  Plan self;
  self.add_lane({.name = "lane"});
  const ChannelId own = self.add_channel({.name = "own", .slots = 1, .initial = 1});
  self.add_service({.name = "alone", .lane = 0, .inputs = {own}, .outputs = {own}});
  EXPECT_THAT(check(self).message(), HasSubstr("alone -> alone"));
}

TEST(PlanCheck, RefusesAnAgreedOrderAgainstTheData) {
  Plan plan;
  plan.add_lane({.name = "dp", .order = LaneOrder::kAgreed, .depth = 4});
  plan.add_lane({.name = "compute"});
  const ChannelId a = plan.add_channel({.name = "a"});
  const ChannelId b = plan.add_channel({.name = "b"});
  plan.add_service({.name = "gather", .lane = 0, .inputs = {b}});
  plan.add_service({.name = "scatter", .lane = 0, .outputs = {a}});
  plan.add_service({.name = "cell", .lane = 1, .inputs = {a}, .outputs = {b}});
  const std::string message = check(plan).message();
  EXPECT_THAT(message, HasSubstr("scatter -> cell"));
  EXPECT_THAT(message, HasSubstr("gather"));
  plan.lanes[0].order = LaneOrder::kPriority;
  EXPECT_TRUE(check(plan).ok());
}

/// F and B of a stage in agreed order, B some generations behind.
Plan lagging(uint32_t lag, uint32_t slots) {
  Plan plan;
  plan.add_lane({.name = "stage", .order = LaneOrder::kAgreed});
  const ChannelId stash = plan.add_channel({.name = "stash", .slots = slots});
  plan.add_service({.name = "F", .lane = 0, .outputs = {stash}});
  plan.add_service({.name = "B", .lane = 0, .lag = lag, .inputs = {stash}});
  return plan;
}

TEST(PlanCheck, RefusesALagOfAsManyGenerationsAsTheChannelHasSlots) {
  for (const uint32_t lag : {0U, 1U, 7U}) {
    EXPECT_TRUE(check(lagging(lag, lag + 1)).ok()) << check(lagging(lag, lag + 1)).to_string();
    if (lag == 0) continue;
    for (const uint32_t slots : {1U, lag}) {
      const Status status = check(lagging(lag, slots));
      EXPECT_EQ(status.code(), Code::kFailedPrecondition);
      EXPECT_THAT(status.message(), HasSubstr("F -> B -> F"));
      EXPECT_THAT(status.message(), HasSubstr("or its lags"));
    }
  }
}

TEST(PlanCheck, RefusesALagAgainstTheData) {
  Plan plan = lagging(0, 9);
  plan.services[0].lag = 1;
  EXPECT_THAT(check(plan).message(), HasSubstr("waits for the next: "));
  plan.channels[0].initial = 1;
  EXPECT_TRUE(check(plan).ok()) << check(plan).to_string();
}

TEST(PlanCheck, RefusesALagOnALaneByPriority) {
  Plan plan = lagging(1, 2);
  plan.lanes[0].order = LaneOrder::kPriority;
  EXPECT_EQ(check(plan).code(), Code::kInvalidArgument);
  EXPECT_THAT(check(plan).message(), HasSubstr("services[1].lag: needs a lane in agreed order"));
  plan.lanes[0].order = LaneOrder::kAgreed;
  plan.services[1].lag = kMostLag + 1;
  EXPECT_THAT(check(plan).message(), HasSubstr("services[1].lag: must be from 0 to 65536"));
}

TEST(PlanCheck, RefusesMoreBytesThanTheLimit) {
  const Plan plan = two_services({.name = "forth", .slots = 3, .slot_bytes = 100},
                                 {.name = "back", .slots = 2, .initial = 1, .slot_bytes = 50});
  EXPECT_EQ(slot_bytes(plan), 400U);
  EXPECT_TRUE(check(plan, {.max_slot_bytes = 400}).ok());
  const Status status = check(plan, {.max_slot_bytes = 399});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("400 bytes"));
}

TEST(PlanCheck, SlotBytesDoNotOverflow) {
  const Plan plan =
      two_services({.name = "forth", .slots = 4, .slot_bytes = ~0ULL}, {.initial = 1});
  EXPECT_EQ(slot_bytes(plan), ~0ULL);
}

TEST(PlanCheck, RefusesWhatIsNotWellFormed) {
  const Plan good = two_services({.name = "forth"}, {.name = "back", .initial = 1});
  ASSERT_TRUE(check(good).ok());
  const auto refused = [](const Plan& plan, const char* word) {
    const Status status = check(plan);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(word));
  };
  Plan plan = good;
  plan.services[0].lane = 1;
  refused(plan, "lane 1 of 1");
  plan = good;
  plan.services[0].inputs.push_back(7);
  refused(plan, "channel 7 of 2");
  plan = good;
  plan.services[0].outputs.push_back(plan.services[1].outputs[0]);
  refused(plan, "2 producers");
  plan = good;
  plan.services[0].inputs.clear();
  refused(plan, "0 consumers");
  plan = good;
  plan.services[0].inputs.push_back(plan.services[0].inputs[0]);
  refused(plan, "twice");
  plan = good;
  plan.channels[0].slots = 0;
  refused(plan, "channels[0].slots");
  plan = good;
  plan.channels[0].initial = 2;
  refused(plan, "channels[0].initial");
  plan = good;
  plan.lanes[0].depth = 0;
  refused(plan, "lanes[0].depth");
  plan = good;
  plan.services[0].duration = -Duration(1);
  refused(plan, "services[0].duration_ns");
}

TEST(CheckOfCopies, RefusesWhatCannotBeCopied) {
  const auto refused = [](const CopySpec& copy, uint64_t from, uint64_t into, const char* words) {
    Plan plan = two_services({.name = "forth", .slot_bytes = from},
                             {.name = "back", .initial = 1, .slot_bytes = into});
    plan.services[1].copy = copy;
    EXPECT_EQ(check(plan).to_string(),
              std::string("INVALID_ARGUMENT: plan: services[1].copy") + words);
  };
  const CopySpec read{.kind = CopyKind::kRead, .path = "file"};
  const CopySpec write{.kind = CopyKind::kWrite, .path = "file"};
  refused({}, 8, 0, ": memory needs 1 outputs with memory, and has 0");
  refused({}, 0, 8, ": memory needs 1 inputs with memory, and has 0");
  refused({}, 8, 7, ": must not copy 8 bytes of \"forth\" into 7 of \"back\"");
  refused({.path = "file"}, 8, 8, ".path: memory has none");
  refused({.stride = 1}, 8, 8, ".stride: memory has none");
  refused(read, 8, 8, ": read needs 0 inputs with memory, and has 1");
  refused(write, 8, 8, ": write needs 0 outputs with memory, and has 1");
  refused({.kind = CopyKind::kRead}, 0, 8, ".path: must be 1 to 4095 bytes");
  refused({.kind = CopyKind::kRead, .path = std::string(kMostPathBytes + 1, 'x')}, 0, 8,
          ".path: must be 1 to 4095 bytes");
  CopySpec far = write;
  far.offset = kMostOffset + 1;
  refused(far, 8, 0, ".offset: must be from 0 to 4611686018427387904");
}

/// Four micro-batches of work, then a step that gives the next weights.
Plan steps(ChannelSpec gradients, ChannelSpec weights) {
  Plan plan = two_services(std::move(gradients), std::move(weights));
  plan.services[0].name = "work";
  plan.services[1].name = "step";
  plan.services[1].every = 4;
  return plan;
}

TEST(CheckOfSteps, FindsACycleAmongTheFiringsOfAStep) {
  EXPECT_TRUE(check(steps({.name = "g", .slots = 4}, {.name = "w", .initial = 1})).ok());
  const Status status = check(steps({.name = "g", .slots = 4}, {.name = "w"}));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("work -> step -> work;"));
}

TEST(CheckOfSteps, RefusesWhatDoesNotFit) {
  const Plan good = steps({.name = "g", .slots = 4, .slot_bytes = 8}, {.name = "w", .initial = 1});
  ASSERT_TRUE(check(good).ok());
  const auto refused = [&good](auto&& change, const char* words) {
    Plan plan = good;
    change(plan);
    EXPECT_EQ(check(plan).to_string(), std::string("INVALID_ARGUMENT: plan: ") + words);
  };
  refused([](Plan& p) { p.services[1].every = 0; }, "services[1].every: must be from 1 to 65536");
  refused([](Plan& p) { p.services[0].every = 3; },
          "services[0].every: must divide 4, the largest");
  refused([](Plan& p) { p.channels[0].slots = 3; },
          "channels[0].slots: must be at least 4, which step takes at a time");
  refused(
      [](Plan& p) { p.lanes[0].order = LaneOrder::kAgreed; },
      "services[1].every: must be 1, as of the other services of lane \"lane\", which is in agreed "
      "order");
  refused(
      [](Plan& p) {
        p.services[1].lane = p.add_lane({.name = "own", .order = LaneOrder::kAgreed});
        p.services[1].lag = 1;
      },
      "services[1].every: has no lag beside it");
  refused(
      [](Plan& p) {
        p.services[1].lane = p.add_lane({.name = "own", .order = LaneOrder::kAgreed});
        p.services[1].operation = OperationSpec{};
      },
      "channels[0]: \"g\" has memory, of which step would take 4 slots at a time; only a function "
      "can");
  refused(
      [](Plan& p) {
        p.services[0].every = 2;
        p.add_service({.name = "slow", .lane = 0, .every = 36});
        p.services[1].every = 3;
      },
      "channels[0]: \"g\" joins work, every 2, and step, every 3; one has to divide the other");
  refused(
      [](Plan& p) {
        for (int i = 0; i < 64; ++i) p.add_service({.name = "many", .lane = 0});
        p.services[1].every = 65536;
      },
      "services[64].every: 65536 micro-batches have more than 4194304 firings");
}

TEST(PlanHash, ChangesWithEverythingButTheLaunch) {
  const Plan plan = two_services({.name = "forth"}, {.name = "back", .initial = 1});
  Plan other = plan;
  other.services[0].launch = [](const Firing&) {};
  EXPECT_EQ(hash_of(other), hash_of(plan));
  const auto differs = [&](auto&& change) {
    Plan changed = plan;
    change(changed);
    EXPECT_NE(hash_of(changed), hash_of(plan));
  };
  differs([](Plan& p) { p.epoch = 1; });
  differs([](Plan& p) { p.lanes[0].depth = 2; });
  differs([](Plan& p) { p.lanes[0].order = LaneOrder::kAgreed; });
  differs([](Plan& p) { p.channels[0].slots = 2; });
  differs([](Plan& p) { p.channels[0].slot_bytes = 2; });
  differs([](Plan& p) { p.channels[1].initial = 0; });
  differs([](Plan& p) { p.channels[1].transfer = Duration(1); });
  differs([](Plan& p) { p.ranks = 2; });
  differs([](Plan& p) { p.lanes[0].ranks = {1}; });
  differs([](Plan& p) { p.services[0].operation = OperationSpec{}; });
  differs([](Plan& p) { p.services[0].operation = OperationSpec{.count = 1}; });
  differs([](Plan& p) { p.services[0].copy = CopySpec{}; });
  differs([](Plan& p) { p.services[0].copy = CopySpec{.kind = CopyKind::kRead}; });
  differs([](Plan& p) { p.services[0].copy = CopySpec{.path = "x"}; });
  differs([](Plan& p) { p.services[0].copy = CopySpec{.offset = 1}; });
  differs([](Plan& p) { p.services[0].copy = CopySpec{.stride = 1}; });
  differs([](Plan& p) { p.services[0].copy = CopySpec{.count = 1}; });
  differs([](Plan& p) { p.services[0].name = "x"; });
  differs([](Plan& p) { p.services[0].priority = 1; });
  differs([](Plan& p) { p.services[0].lag = 1; });
  differs([](Plan& p) { p.services[0].every = 2; });
  differs([](Plan& p) { p.services[0].duration = Duration(1); });
  differs([](Plan& p) { std::swap(p.services[0].inputs, p.services[0].outputs); });
}

TEST(MinimumPeriod, IsTheSlowestCycleOrTheBusiestLane) {
  Plan plan;
  plan.add_lane({.name = "a"});
  plan.add_lane({.name = "b"});
  const ChannelId data = plan.add_channel({.name = "data"});
  plan.add_service({.name = "first", .lane = 0, .duration = Duration(30), .outputs = {data}});
  plan.add_service({.name = "second", .lane = 1, .duration = Duration(50), .inputs = {data}});
  EXPECT_EQ(minimum_period_ns(plan), 80) << "one slot: they take turns";
  plan.channels[0].slots = 2;
  EXPECT_EQ(minimum_period_ns(plan), 50) << "two slots: the slower one";
  plan.services[1].lane = 0;
  EXPECT_EQ(minimum_period_ns(plan), 80) << "one lane: the sum";
  plan.lanes[0].depth = 2;
  EXPECT_EQ(minimum_period_ns(plan), 50);
}

/// Lets the first consumer read what it can, to the end; other consumers see no difference.
uint32_t readings(Channel& channel) {
  uint32_t readable = 0;
  for (; channel.can_read(0); ++readable) channel.release(0);
  return readable;
}

TEST(RandomPlans, NeverStandStillReturnToTheirMarkingAndNeverBeatTheBound) {
  constexpr uint32_t kGenerations = 60;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Plan plan = random_live_plan(random);
    ASSERT_TRUE(check(plan).ok()) << check(plan).to_string();
    if (seed % 2 == 1) add_random_rates(random, plan);
    if (!check(plan).ok()) continue;
    VirtualLanes lanes(plan, {.seed = seed});
    auto executor = Executor::create(plan, lanes.lanes());
    ASSERT_TRUE(executor.ok());
    Executor* const running = executor->get();
    running->run_until(kGenerations);
    const Time end = lanes.run(*running);
    const auto ends = ends_of(plan);
    ASSERT_TRUE(running->reached()) << running->describe_waiting();
    for (ChannelId id = 0; id < plan.channels.size(); ++id) {
      const Pace pace = pace_of(plan, ends[id].producers[0], ends[id].consumers[0]);
      EXPECT_EQ(readings(running->channel(id)), plan.channels[id].initial * pace.reads / pace.takes)
          << "whole steps have been fired: the first marking is back";
    }
    // Around a cycle of duration D with T tokens, N firings take at least (N / T - 1) D.
    Duration all{};
    for (const ServiceSpec& service : plan.services)
      all += service.duration * (step_of(plan) / service.every);
    EXPECT_GE(static_cast<double>((end.since_start + all).count()),
              minimum_period_ns(plan) * kGenerations);
  }
}

TEST(RandomPlans, LanesInAgreedOrderReachTheBound) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Plan plan = random_live_plan(random);
    for (LaneSpec& lane : plan.lanes) lane = {.name = lane.name, .order = LaneOrder::kAgreed};
    ASSERT_TRUE(check(plan).ok());
    VirtualLanes lanes(plan);
    auto executor = Executor::create(plan, lanes.lanes());
    ASSERT_TRUE(executor.ok());
    // A marked graph settles into a periodic regime; its rate is read off two late ends, many
    // periods apart.
    (*executor)->run_until(200);
    const Time early = lanes.run(**executor);
    (*executor)->run_until(2200);
    const Time late = lanes.run(**executor);
    const double period = static_cast<double>((late - early).count()) / 2000;
    EXPECT_NEAR(period, minimum_period_ns(plan), 0.1 + 0.01 * minimum_period_ns(plan));
  }
}

TEST(RandomPlans, SameSeedSameRun) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto trace = [seed] {
      std::mt19937_64 random(seed);
      const Plan plan = random_live_plan(random);
      std::string text;
      VirtualLanes lanes(plan,
                         {.seed = seed, .jitter = 0.5, .observer = [&text](const auto& firing) {
                            text += fmt::format("{}.{}@{} ", firing.name, firing.generation.micro,
                                                firing.end.since_start.count());
                          }});
      auto executor = Executor::create(plan, lanes.lanes());
      CORRO_CHECK(executor.ok());
      (*executor)->run_until(20);
      lanes.run(**executor);
      return text;
    };
    EXPECT_EQ(trace(), trace()) << seed;
  }
}

TEST(RandomPlans, FindATokenFreeCycleExactlyWhenOneStandsStill) {
  constexpr uint64_t kGenerations =
      60;  // A lag shows once so many generations are not passed over.
  int stuck = 0;
  int live_with_lags = 0;
  int live_with_rates = 0;
  for (uint64_t seed = 0; seed < 1200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Plan plan = random_live_plan(random);
    const bool lags = seed % 3 == 1;
    const bool rates = seed % 3 == 2;
    if (lags) add_random_lags(random, plan);
    if (rates) add_random_rates(random, plan);
    for (ChannelSpec& channel : plan.channels) {
      if (random() % (lags || rates ? 20 : 3) == 0) channel.initial = 0;
    }
    ASSERT_TRUE(check_form(plan).ok());
    const bool live = find_token_free_cycle(plan).empty();
    // What the checker says is compared with a marking played by hand, without the executor.
    std::vector<uint64_t> fired(plan.services.size(), 0);
    std::vector<ServiceId> producer(plan.channels.size());
    for (ServiceId id = 0; id < plan.services.size(); ++id) {
      for (const ChannelId c : plan.services[id].outputs) producer[c] = id;
    }
    const auto may_fire = [&](ServiceId id) {
      const ServiceSpec& service = plan.services[id];
      for (const ChannelId c : service.inputs) {
        const Pace pace = pace_of(plan, producer[c], id);
        const uint64_t needed = (fired[id] / pace.reads + 1) * pace.takes;
        if (fired[producer[c]] + plan.channels[c].initial < needed) return false;
      }
      for (ServiceId reader = 0; reader < plan.services.size(); ++reader) {
        for (const ChannelId c : plan.services[reader].inputs) {
          if (producer[c] != id) continue;
          const Pace pace = pace_of(plan, id, reader);
          const uint64_t freed = fired[reader] / pace.reads * pace.takes;
          if (fired[id] + plan.channels[c].initial >= freed + plan.channels[c].slots) return false;
        }
      }
      for (ServiceId other = 0; other < plan.services.size(); ++other) {
        if (plan.services[other].lane != service.lane || other == id) continue;
        if (plan.lanes[service.lane].order != LaneOrder::kAgreed) continue;
        if (fired[other] == kGenerations / plan.services[other].every) continue;
        const auto round = [&](ServiceId s) { return fired[s] + plan.services[s].lag; };
        if (other < id ? round(other) <= round(id) : round(other) < round(id)) return false;
      }
      return true;
    };
    bool moved = true;
    while (moved) {
      moved = false;
      for (ServiceId id = 0; id < fired.size(); ++id) {
        if (fired[id] < kGenerations / plan.services[id].every && may_fire(id)) {
          ++fired[id];
          moved = true;
        }
      }
    }
    bool all = true;
    for (ServiceId id = 0; id < fired.size(); ++id)
      all &= fired[id] == kGenerations / plan.services[id].every;
    EXPECT_EQ(all, live);
    stuck += live ? 0 : 1;
    live_with_rates += live && rates ? 1 : 0;
    live_with_lags += live && lags ? 1 : 0;
  }
  EXPECT_GT(stuck, 100) << "the test sees both cases";
  EXPECT_GT(live_with_lags, 50);
  EXPECT_GT(live_with_rates, 50);
}

}  // namespace
}  // namespace corro::graph
