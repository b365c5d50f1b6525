#include "graph/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "graph/virtual_lanes.h"

namespace corro::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Launches at once and remembers what it started.
class ManualLane final : public Lane {
 public:
  void start(Time, const Work& work) override {
    started.emplace_back(work.name);
    tickets.push_back(work.firing.ticket);
    if (work.launch) work.launch(work.firing);
  }
  std::vector<std::string> started;
  std::vector<Ticket> tickets;
};

std::unique_ptr<Executor> make(const Plan& plan, std::vector<Lane*> lanes) {
  auto executor = Executor::create(plan, std::move(lanes));
  CORRO_CHECK(executor.ok(), executor.status().to_string());
  return std::move(executor).value();
}

/// source -> channel -> sink, each on a lane of its own.
Plan chain(uint32_t slots) {
  Plan plan;
  const LaneId first = plan.add_lane({.name = "first"});
  const LaneId second = plan.add_lane({.name = "second"});
  const ChannelId data = plan.add_channel({.name = "data", .slots = slots, .slot_bytes = 16});
  plan.add_service({.name = "source", .lane = first, .outputs = {data}});
  plan.add_service({.name = "sink", .lane = second, .inputs = {data}});
  return plan;
}

TEST(Executor, NothingFiresBeforeItIsAllowed) {
  ManualLane a, b;
  auto executor = make(chain(1), {&a, &b});
  EXPECT_FALSE(executor->poll({}));
  EXPECT_TRUE(executor->reached());
  executor->run_until(1);
  EXPECT_TRUE(executor->poll({}));
  EXPECT_THAT(a.started, ElementsAre("source"));
  EXPECT_TRUE(b.started.empty()) << "its input is not there yet";
}

TEST(Executor, ProducerRunsAheadByItsCreditsAndNoFurther) {
  ManualLane a, b;
  auto executor = make(chain(2), {&a, &b});
  executor->run_until(10);
  for (int i = 0; i < 2; ++i) {
    executor->poll({});
    executor->complete(a.tickets.back());
  }
  EXPECT_FALSE(executor->poll({}) && a.started.size() > 2);
  EXPECT_EQ(a.started.size(), 2U);
  EXPECT_EQ(b.started.size(), 1U);
  EXPECT_THAT(executor->describe_waiting(),
              HasSubstr("service source, micro-batch 2: waits for a free slot of data"));
  executor->complete(b.tickets.back());
  executor->poll({});
  EXPECT_EQ(a.started.size(), 3U);
}

TEST(Executor, SlotsCarryMemoryGenerationAndSize) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<uint64_t> sizes;
  Plan plan = chain(2);
  std::vector<Ticket> done;
  plan.services[0].launch = [&done](const Firing& firing) {
    firing.outputs[0]->data[0] = static_cast<std::byte>(firing.generation.micro + 40);
    firing.outputs[0]->size_bytes = firing.generation.micro + 1;
    done.push_back(firing.ticket);
  };
  plan.services[1].launch = [&](const Firing& firing) {
    EXPECT_EQ(firing.inputs[0]->data[0], static_cast<std::byte>(firing.generation.micro + 40));
    EXPECT_EQ(firing.inputs[0]->generation, firing.generation);
    sizes.push_back(firing.inputs[0]->size_bytes);
    done.push_back(firing.ticket);
  };
  plan.epoch = 7;
  ManualLane a, b;
  auto created = Executor::create(
      plan, {&a, &b}, {.allocate = [&memory, &plan](ChannelId channel, uint32_t) {
        return Result(std::span(memory.emplace_back(plan.channels[channel].slot_bytes)));
      }});
  ASSERT_TRUE(created.ok());
  Executor& executor = **created;
  EXPECT_EQ(executor.next_generation(0), (Generation{7, 0}));
  executor.run_until(5);
  while (executor.poll({})) {
    const auto ended = std::exchange(done, {});
    for (const Ticket ticket : ended) executor.complete(ticket);
  }
  EXPECT_TRUE(executor.reached());
  EXPECT_THAT(sizes, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(memory.size(), 2U) << "one buffer a slot, made once";
}

TEST(Executor, FailsToBeCreatedWhenMemoryFails) {
  ManualLane a, b;
  const auto created = Executor::create(
      chain(2), {&a, &b}, {.allocate = [](ChannelId, uint32_t) {
        return Result<std::span<std::byte>>(Status(Code::kResourceExhausted, "arena is full"));
      }});
  EXPECT_EQ(created.status().code(), Code::kResourceExhausted);
}

TEST(Executor, RefusesAnotherNumberOfLanes) {
  ManualLane a;
  EXPECT_EQ(Executor::create(chain(1), {&a}).status().code(), Code::kInvalidArgument);
}

TEST(Executor, LaneInAgreedOrderWaitsForItsTurn) {
  // Two buckets become ready in reverse order; the communicator starts them in plan order all the
  // same.
  Plan plan;
  const LaneId compute = plan.add_lane({.name = "compute", .depth = 2});
  const LaneId communicator =
      plan.add_lane({.name = "dp", .order = LaneOrder::kAgreed, .depth = 2});
  const ChannelId first = plan.add_channel({.name = "bucket0"});
  const ChannelId second = plan.add_channel({.name = "bucket1"});
  plan.add_service({.name = "grad0", .lane = compute, .outputs = {first}});
  plan.add_service({.name = "grad1", .lane = compute, .outputs = {second}});
  plan.add_service({.name = "reduce0", .lane = communicator, .inputs = {first}});
  plan.add_service({.name = "reduce1", .lane = communicator, .inputs = {second}});
  ManualLane a, b;
  auto executor = make(plan, {&a, &b});
  executor->run_until(1);
  executor->poll({});
  ASSERT_THAT(a.started, ElementsAre("grad0", "grad1"));
  executor->complete(a.tickets[1]);
  executor->poll({});
  EXPECT_TRUE(b.started.empty()) << "bucket 1 is ready, but it is bucket 0's turn";
  executor->complete(a.tickets[0]);
  executor->poll({});
  EXPECT_THAT(b.started, ElementsAre("reduce0", "reduce1")) << "both in flight: depth 2";
}

TEST(Executor, ALagLetsAServiceFollowItsLaneFromBehind) {
  Plan plan;
  const LaneId lane = plan.add_lane({.name = "stage", .order = LaneOrder::kAgreed});
  const ChannelId stash = plan.add_channel({.name = "stash", .slots = 8});
  plan.add_service({.name = "F", .lane = lane, .outputs = {stash}});
  plan.add_service({.name = "B", .lane = lane, .lag = 2, .inputs = {stash}});
  const auto order = [&plan](const std::vector<uint32_t>& at_once, uint32_t later) {
    std::string text;
    VirtualLanes lanes(plan, {.observer = [&text](const VirtualFiring& firing) {
                         text += fmt::format("{}{} ", firing.name, firing.generation.micro);
                       }});
    auto executor = make(plan, lanes.lanes());
    for (const uint32_t first : {0U, 10U}) {
      CORRO_CHECK(executor->restart({.epoch = 0, .micro = first}).ok());
      for (const uint32_t end : at_once) executor->run_until(first + end);
      lanes.run(*executor);
      executor->run_until(first + later);
      lanes.run(*executor);
      EXPECT_TRUE(executor->reached()) << executor->describe_waiting();
    }
    return text;
  };
  const std::string once = "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 ";
  const std::string again = "F10 F11 F12 B10 F13 B11 F14 B12 B13 B14 ";
  EXPECT_EQ(order({5}, 5), once + again);
  EXPECT_EQ(order({1, 4}, 5),
            "F0 B0 F1 F2 F3 B1 B2 B3 F4 B4 F10 B10 F11 F12 F13 B11 B12 B13 F14 B14 ");
  EXPECT_EQ(order({1, 4, 5}, 5), order({1, 4}, 5)) << "the order is that of the calls";
}

TEST(Executor, LaneByPriorityTakesTheMostUrgentOfThoseReady) {
  Plan plan;
  const LaneId lane = plan.add_lane({.name = "gpu"});
  for (const int priority : {5, 1, 3, 1}) {
    const auto name = "p" + std::to_string(plan.services.size());
    const ChannelId own = plan.add_channel({.name = name, .slots = 2, .initial = 1});
    plan.add_service(
        {.name = name, .lane = lane, .priority = priority, .inputs = {own}, .outputs = {own}});
  }
  VirtualLanes virtual_lanes(plan);
  ManualLane a;
  auto executor = make(plan, {&a});
  executor->run_until(1);
  while (executor->poll({})) executor->complete(a.tickets.back());
  EXPECT_THAT(a.started, ElementsAre("p1", "p3", "p2", "p0"));
}

TEST(Executor, BarrierWaitsForAllAndFiresOnce) {
  Plan plan;
  std::vector<ChannelId> arrivals;
  std::vector<ManualLane> lanes(5);
  std::vector<Lane*> pointers;
  for (uint32_t i = 0; i < 4; ++i) {
    const LaneId lane = plan.add_lane({.name = "worker"});
    arrivals.push_back(plan.add_channel({.name = "arrived"}));
    plan.add_service({.name = "work", .lane = lane, .outputs = {arrivals.back()}});
  }
  const LaneId lane = plan.add_lane({.name = "control"});
  const ChannelId passed = plan.add_channel({.name = "passed"});
  plan.add_service({.name = "barrier", .lane = lane, .inputs = arrivals, .outputs = {passed}});
  plan.add_service({.name = "after", .lane = lane, .inputs = {passed}});
  for (ManualLane& each : lanes) pointers.push_back(&each);
  auto executor = make(plan, pointers);
  executor->run_until(1);
  executor->poll({});
  for (const size_t worker : {2U, 0U, 3U, 1U}) {
    EXPECT_TRUE(lanes[4].started.empty());
    executor->complete(lanes[worker].tickets[0]);
    executor->poll({});
  }
  ASSERT_THAT(lanes[4].started, ElementsAre("barrier"));
  executor->complete(lanes[4].tickets[0]);
  executor->poll({});
  EXPECT_THAT(lanes[4].started, ElementsAre("barrier", "after"));
}

TEST(Executor, SlotIsFreeOnlyWhenEveryConsumerHasReadIt) {
  Plan plan;
  const ChannelId data = plan.add_channel({.name = "data"});
  for (const char* name : {"source", "left", "right"}) plan.add_lane({.name = name});
  plan.add_service({.name = "source", .lane = 0, .outputs = {data}});
  plan.add_service({.name = "left", .lane = 1, .inputs = {data}});
  plan.add_service({.name = "right", .lane = 2, .inputs = {data}});
  ManualLane a, b, c;
  auto executor = make(plan, {&a, &b, &c});
  executor->run_until(2);
  executor->poll({});
  executor->complete(a.tickets[0]);
  executor->poll({});
  executor->complete(b.tickets[0]);
  executor->poll({});
  EXPECT_EQ(a.started.size(), 1U);
  executor->complete(c.tickets[0]);
  executor->poll({});
  EXPECT_EQ(a.started.size(), 2U);
}

TEST(Executor, BoundedStalenessIsInitialTokens) {
  // A pull may be s versions old: the store's channel starts with s + 1 versions.
  for (const uint32_t staleness : {0U, 1U, 3U}) {
    Plan plan;
    plan.add_lane({.name = "worker"});
    plan.add_lane({.name = "server"});
    const ChannelId version =
        plan.add_channel({.name = "version", .slots = staleness + 1, .initial = staleness + 1});
    const ChannelId gradient = plan.add_channel({.name = "gradient", .slots = 8});
    plan.add_service({.name = "step", .lane = 0, .inputs = {version}, .outputs = {gradient}});
    plan.add_service({.name = "update", .lane = 1, .inputs = {gradient}, .outputs = {version}});
    ManualLane worker, server;
    auto executor = make(plan, {&worker, &server});
    executor->run_until(100);
    while (executor->poll({}) && worker.started.size() < 50)
      executor->complete(worker.tickets.back());
    EXPECT_EQ(worker.started.size(), staleness + 1) << "then it waits for the first update";
  }
}

/// Four micro-batches of work; then a step takes their four gradients and gives weights for four.
class Steps : public ::testing::Test {
 protected:
  Steps() {
    Plan plan;
    plan.add_lane({.name = "cell"});
    plan.add_lane({.name = "optimizer"});
    const ChannelId weights =
        plan.add_channel({.name = "weights", .slots = 2, .initial = 1, .slot_bytes = 1});
    const ChannelId gradient = plan.add_channel({.name = "gradient", .slots = 5, .slot_bytes = 1});
    const auto work = [this](const Firing& firing) {
      read_.push_back(std::to_integer<int>(firing.inputs[0]->data[0]));
      firing.outputs[0]->data[0] = std::byte{static_cast<uint8_t>(firing.generation.micro)};
    };
    const auto step = [this](const Firing& firing) {
      steps_.push_back(firing.generation.micro);
      for (const Slot* slot : firing.inputs) taken_.push_back(std::to_integer<int>(slot->data[0]));
      firing.outputs[0]->data[0] = std::byte{static_cast<uint8_t>(firing.generation.micro + 1)};
    };
    plan.add_service({.name = "work", .inputs = {weights}, .outputs = {gradient}, .launch = work});
    plan.add_service({.name = "step",
                      .lane = 1,
                      .every = 4,
                      .inputs = {gradient},
                      .outputs = {weights},
                      .launch = step});
    memory_.resize(7);
    auto made = Executor::create(
        plan, {&cell_, &optimizer_}, {.allocate = [this](ChannelId channel, uint32_t slot) {
          return Result<std::span<std::byte>>(std::span(memory_).subspan(2 * channel + slot, 1));
        }});
    CORRO_CHECK(made.ok(), made.status().to_string());
    executor_ = std::move(made).value();
  }

  void run_until(uint32_t micro) {
    executor_->run_until(micro);
    while (executor_->poll({})) {
      executor_->complete(cell_.tickets.back());
      if (!optimizer_.tickets.empty()) executor_->complete(optimizer_.tickets.back());
    }
  }

  ManualLane cell_, optimizer_;
  std::vector<std::byte> memory_;
  std::vector<int> read_, taken_;
  std::vector<uint32_t> steps_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(Steps, AServiceFiresOnceForSeveralMicroBatches) {
  run_until(12);
  EXPECT_TRUE(executor_->reached()) << executor_->describe_waiting();
  EXPECT_THAT(read_, ElementsAre(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8)) << "each weights four times";
  EXPECT_THAT(taken_, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)) << "in the order of time";
  EXPECT_THAT(steps_, ElementsAre(3, 7, 11)) << "with the last micro-batch of each";
  EXPECT_EQ(executor_->completed_by(1), 12U);
}

TEST_F(Steps, DoNotFireForAPart) {
  run_until(6);
  EXPECT_TRUE(executor_->reached());
  EXPECT_EQ(read_.size(), 6U);
  EXPECT_EQ(steps_.size(), 1U);
  EXPECT_EQ(executor_->completed(), 4U) << "where all can begin again";
  run_until(8);
  EXPECT_THAT(steps_, ElementsAre(3, 7));
}

TEST_F(Steps, BeginAgainWithTheFirstMicroBatchOfOne) {
  run_until(7);
  EXPECT_EQ(
      executor_->restart({.epoch = 1, .micro = 6}).to_string(),
      "INVALID_ARGUMENT: executor: cannot start with micro-batch 6: a step of the plan has 4");
  ASSERT_TRUE(executor_->restart({.epoch = 1, .micro = 4}).ok());
  memory_[0] = std::byte{4};  // The weights that were there then.
  read_.clear();
  taken_.clear();
  run_until(12);
  EXPECT_THAT(read_, ElementsAre(4, 4, 4, 4, 8, 8, 8, 8));
  EXPECT_THAT(taken_, ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
}

TEST(Executor, CompletionInsideTheLaunchCounts) {
  Plan plan = chain(1);
  std::unique_ptr<Executor> executor;
  int reads = 0;
  plan.services[0].launch = [&executor](const Firing& firing) {
    executor->complete(firing.ticket);
  };
  plan.services[1].launch = [&](const Firing& firing) {
    ++reads;
    executor->complete(firing.ticket);
  };
  ManualLane a, b;
  executor = make(plan, {&a, &b});
  executor->run_until(1000);
  EXPECT_TRUE(executor->poll({}));
  EXPECT_EQ(reads, 1000);
  EXPECT_TRUE(executor->reached());
  EXPECT_FALSE(executor->poll({}));
}

TEST(Executor, FailedServiceStopsThePlanAndIsNamed) {
  ManualLane a, b;
  auto executor = make(chain(3), {&a, &b});
  executor->run_until(10);
  executor->poll({});
  executor->complete(a.tickets[0]);
  executor->poll({});
  executor->complete(b.tickets[0], {Code::kUnavailable, "rank 2 was lost"});
  EXPECT_THAT(executor->status().message(), HasSubstr("service sink"));
  EXPECT_THAT(executor->status().message(), HasSubstr("rank 2 was lost"));
  EXPECT_THAT(executor->restart({1, 0}).message(), HasSubstr("source"))
      << "source is still in flight";
  executor->complete(a.tickets[1], {Code::kAborted, "lane aborted"});
  EXPECT_THAT(executor->status().message(), HasSubstr("rank 2 was lost"))
      << "the first reason stays";
  EXPECT_FALSE(executor->poll({}));
  EXPECT_FALSE(executor->reached());
  EXPECT_TRUE(executor->idle());
}

class Heard final : public FiringObserver {
 public:
  void on_start(ServiceId service, Generation generation) override {
    said.push_back(fmt::format("{} begins {}", service, generation.micro));
  }
  void on_end(ServiceId service, const Status& status) override {
    said.push_back(fmt::format("{} {}", service, code_name(status.code())));
  }
  std::vector<std::string> said;
};

TEST(Executor, AnObserverHearsOfEachFiringAndOfNoOneShot) {
  ManualLane a, b;
  Heard heard;
  auto executor = Executor::create(chain(1), {&a, &b}, {.observer = &heard}).value();
  executor->run_until(1);
  ASSERT_TRUE(executor->submit(1, {.name = "one-shot"}).ok());
  executor->poll({});
  executor->complete(a.tickets.back());
  executor->complete(b.tickets.back());
  executor->poll({});
  executor->complete(a.tickets.back());  // Late.
  executor->complete(b.tickets.back(), {Code::kInternal, "broken"});
  EXPECT_THAT(heard.said, ElementsAre("0 begins 0", "0 OK", "1 begins 0", "1 INTERNAL"));
}

TEST(Executor, RestartTakesEverySlotBackAndDropsLateTickets) {
  ManualLane a, b;
  auto executor = make(chain(3), {&a, &b});
  executor->run_until(4);
  executor->poll({});
  executor->complete(a.tickets[0]);
  executor->poll({});
  executor->complete(a.tickets[1]);
  executor->complete(b.tickets[0], {Code::kUnavailable, "lost"});
  EXPECT_TRUE(executor->channel(0).can_read(0));
  ASSERT_TRUE(executor->restart({.epoch = 1, .micro = 2}).ok());
  EXPECT_FALSE(executor->channel(0).can_read(0)) << "no slot of the old epoch is left";
  executor->complete(b.tickets[0]);  // From the old epoch.
  EXPECT_FALSE(executor->channel(0).can_read(0));
  EXPECT_FALSE(executor->poll({})) << "not before run_until";
  executor->run_until(4);
  while (executor->poll({})) {
    if (executor->next_generation(0).micro > 2) executor->complete(a.tickets.back());
    if (executor->next_generation(1).micro > 2) executor->complete(b.tickets.back());
  }
  EXPECT_TRUE(executor->reached());
  EXPECT_EQ(executor->next_generation(1), (Generation{1, 4}));
}

TEST(Executor, FaultInVirtualTimeStopsEverythingAndSlotsComeBack) {
  const Plan plan = chain(2);
  VirtualLanes lanes(plan, {.outcome = [](const VirtualFiring& firing) {
                       return firing.name == "sink" && firing.generation.micro == 3
                                  ? Status(Code::kDataLoss, "checksum")
                                  : Status();
                     }});
  auto executor = make(plan, lanes.lanes());
  executor->run_until(10);
  lanes.run(*executor);
  EXPECT_EQ(executor->status().code(), Code::kDataLoss);
  EXPECT_TRUE(executor->idle());
  ASSERT_TRUE(executor->restart({1, 3}).ok());
  EXPECT_TRUE(executor->status().ok());
}

struct OneShotLane : ::testing::Test {
  Ticket submit(LaneId id, const char* name, int32_t priority = 0) {
    auto ticket = executor->submit(id, {.name = name,
                                        .priority = priority,
                                        .launch = {},
                                        .on_done = [this, name](const Status& s) {
                                          done.push_back(std::string(name) + (s.ok() ? "" : "!"));
                                        }});
    return ticket.value();
  }
  ManualLane lane;
  std::unique_ptr<Executor> executor = make({}, {});
  std::vector<std::string> done;
};

TEST_F(OneShotLane, StartsInOrderOfSubmissionUpToItsDepth) {
  const LaneId id =
      executor->add_lane({.name = "dp", .order = LaneOrder::kAgreed, .depth = 2}, lane);
  const Ticket a = submit(id, "a");
  const Ticket b = submit(id, "b");
  submit(id, "c");
  EXPECT_TRUE(lane.started.empty()) << "only poll starts";
  executor->poll({});
  EXPECT_THAT(lane.started, ElementsAre("a", "b"));
  executor->complete(b);
  EXPECT_THAT(done, ElementsAre("b"));
  executor->poll({});
  EXPECT_THAT(lane.started, ElementsAre("a", "b", "c"));
  executor->complete(a, {Code::kInvalidArgument, "mismatch"});
  executor->complete(a);
  EXPECT_THAT(done, ElementsAre("b", "a!")) << "a ticket counts once";
  EXPECT_EQ(executor->one_shots(id), 1U);
  EXPECT_TRUE(executor->status().ok()) << "a failed one-shot stops nothing";
}

TEST_F(OneShotLane, StartsSoManyAsTheirWeightsLeaveRoomFor) {
  const LaneId id = executor->add_lane({.name = "link", .depth = 4}, lane);
  const auto add = [&](const char* name, uint32_t weight) {
    ASSERT_TRUE(executor->submit(id, {.name = name, .weight = weight}).ok());
  };
  for (const char* name : {"a", "b"}) add(name, 1);
  add("large", 3);
  add("c", 1);
  executor->poll({});
  EXPECT_THAT(lane.started, ElementsAre("a", "b")) << "c does not overtake";
  executor->complete(lane.tickets[0]);
  executor->poll({});
  EXPECT_THAT(lane.started, ElementsAre("a", "b", "large"));
  executor->complete(lane.tickets[1]);
  executor->poll({});
  EXPECT_THAT(lane.started, ElementsAre("a", "b", "large", "c"));
  add("larger than the lane", 9);
  executor->complete(lane.tickets[2]);
  executor->complete(lane.tickets[3]);
  executor->poll({});
  EXPECT_EQ(lane.started.back(), "larger than the lane");
}

TEST_F(OneShotLane, GoesByPriorityWhereTheLaneDoes) {
  const LaneId id = executor->add_lane({.name = "pool"}, lane);
  submit(id, "low", 5);
  submit(id, "high", 1);
  submit(id, "middle", 3);
  submit(id, "high again", 1);
  while (executor->poll({})) executor->complete(lane.tickets.back());
  EXPECT_THAT(done, ElementsAre("high", "high again", "middle", "low"));
}

TEST_F(OneShotLane, CancelEndsThoseThatWaitAndLeavesThoseInFlight) {
  const LaneId id = executor->add_lane({.name = "dp", .order = LaneOrder::kAgreed}, lane);
  submit(id, "running");
  submit(id, "first");
  submit(id, "second");
  executor->poll({});
  EXPECT_EQ(executor->cancel_pending(id, {Code::kUnavailable, "rank 1 was lost"}), 2U);
  EXPECT_THAT(done, ElementsAre("first!", "second!"));
  EXPECT_FALSE(executor->idle());
  EXPECT_EQ(executor->remove_lane(id).code(), Code::kFailedPrecondition);
  executor->complete(lane.tickets[0]);
  EXPECT_THAT(done, ElementsAre("first!", "second!", "running"));
  EXPECT_TRUE(executor->idle());
  EXPECT_TRUE(executor->remove_lane(id).ok());
  EXPECT_EQ(executor->add_lane({.name = "other"}, lane), id);
}

TEST_F(OneShotLane, LanesDoNotWaitForEachOther) {
  ManualLane other;
  const LaneId first = executor->add_lane({.name = "a", .order = LaneOrder::kAgreed}, lane);
  submit(first, "stuck");
  submit(first, "behind");
  executor->poll({});
  const LaneId second = executor->add_lane({.name = "b", .order = LaneOrder::kAgreed}, other);
  submit(second, "free");
  executor->poll({});
  EXPECT_THAT(other.started, ElementsAre("free"));
}

TEST_F(OneShotLane, LaunchMayCompleteItselfAndDoneMaySubmitMore) {
  const LaneId id = executor->add_lane({.name = "dp", .order = LaneOrder::kAgreed}, lane);
  int left = 100;
  std::function<void()> next = [&] {
    const std::string kept(64,
                           'x');  // Too large for the small buffer: freed too early, it would show.
    (void)executor
        ->submit(id, {.name = "again",
                      .launch =
                          [this, kept](const Firing& firing) {
                            executor->complete(firing.ticket);
                            EXPECT_EQ(kept, std::string(64, 'x'));
                          },
                      .on_done =
                          [&](const Status&) {
                            if (--left > 0) next();
                          }})
        .value();
  };
  next();
  executor->poll({});
  EXPECT_EQ(left, 0);
  EXPECT_TRUE(executor->idle());
}

TEST_F(OneShotLane, WhatTheCallerRunsItselfHoldsTheLane) {
  const LaneId id = executor->add_lane({.name = "dp", .order = LaneOrder::kAgreed}, lane);
  const Ticket begun = executor->try_begin(id).value();
  EXPECT_FALSE(executor->try_begin(id)) << "one is in flight";
  submit(id, "behind");
  executor->poll({});
  EXPECT_TRUE(lane.started.empty());
  EXPECT_EQ(executor->one_shots(id), 2U);
  EXPECT_EQ(executor->remove_lane(id).code(), Code::kFailedPrecondition);
  executor->complete(begun);
  executor->complete(begun);
  EXPECT_EQ(executor->one_shots(id), 1U) << "a ticket counts once";
  EXPECT_FALSE(executor->try_begin(id)) << "one waits";
  executor->poll({});
  EXPECT_THAT(lane.started, ElementsAre("behind"));
  executor->complete(lane.tickets[0]);
  EXPECT_TRUE(executor->idle());
}

TEST_F(OneShotLane, ALateTicketOfALaneThatIsGoneEndsNothing) {
  const LaneId id = executor->add_lane({.name = "dp", .order = LaneOrder::kAgreed}, lane);
  const Ticket late = executor->try_begin(id).value();
  executor->complete(late);
  ASSERT_TRUE(executor->remove_lane(id).ok());
  ASSERT_EQ(executor->add_lane({.name = "next", .order = LaneOrder::kAgreed}, lane), id);
  ASSERT_TRUE(executor->try_begin(id));
  executor->complete(late);
  executor->complete({.task = late.task + 1, .sequence = late.sequence});
  EXPECT_EQ(executor->one_shots(id), 1U);
}

TEST(Executor, LaneInAgreedOrderServesThePlanOrOneShotsNotBoth) {
  Plan plan = chain(1);
  plan.lanes[0].order = LaneOrder::kAgreed;
  ManualLane a, b;
  auto executor = make(plan, {&a, &b});
  EXPECT_EQ(executor->submit(0, {.name = "barrier"}).status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(executor->submit(1, {.name = "log"}).ok());
}

/// Three services in agreed order, each behind a source that the test ends.
class Leaving : public testing::Test {
 protected:
  static Plan plan() {
    Plan plan;
    plan.add_lane({.name = "sources", .depth = 8});
    plan.add_lane({.name = "agreed", .order = LaneOrder::kAgreed});
    for (const std::string name : {"a", "b", "c"}) {
      const ChannelId data = plan.add_channel({.name = name});
      plan.add_service({.name = "source of " + name, .lane = 0, .outputs = {data}});
      plan.add_service({.name = name, .lane = 1, .inputs = {data}});
    }
    return plan;
  }
  Leaving() {
    executor_->run_until(100);
    executor_->poll({});
  }
  /// Ends a source's firing, and what the agreed lane starts then.
  void feed(size_t source) {
    for (size_t i = 0; i < sources_.started.size(); ++i) {
      if (sources_.tickets[i].task == 2 * source) executor_->complete(sources_.tickets[i]);
    }
    run();
  }
  void run() {
    while (executor_->poll({})) {
      for (; ended_ < agreed_.tickets.size(); ++ended_)
        executor_->complete(agreed_.tickets[ended_]);
    }
  }
  static Place place(uint32_t micro, ServiceId service) {
    return {.generation = {.epoch = 0, .micro = micro}, .service = service};
  }
  static constexpr ServiceId kSourceOfB = 2, kB = 3, kC = 5;

  ManualLane sources_, agreed_;
  size_t ended_ = 0;
  std::unique_ptr<Executor> executor_ = make(plan(), {&sources_, &agreed_});
};

TEST_F(Leaving, FrozenPlansStartNothingAndSayWhereTheyAre) {
  feed(0);
  EXPECT_EQ(executor_->freeze(), place(0, kB));
  feed(1);
  EXPECT_THAT(agreed_.started, ElementsAre("a"));
  EXPECT_EQ(executor_->freeze(), place(0, kB)) << "again";
}

TEST_F(Leaving, EndsBeforeTheCut) {
  feed(0);
  (void)executor_->freeze();
  ASSERT_TRUE(executor_->leave(place(1, kSourceOfB)).ok());
  EXPECT_FALSE(executor_->reached());
  for (const size_t source : {1U, 2U, 0U}) feed(source);
  EXPECT_THAT(agreed_.started, ElementsAre("a", "b", "c", "a"));
  EXPECT_TRUE(executor_->reached());
  for (const size_t source : {1U, 2U, 0U}) feed(source);
  EXPECT_EQ(agreed_.started.size(), 4U) << "nothing beyond";
}

TEST_F(Leaving, IsOverAtOnceIfNothingIsLeft) {
  feed(0);
  (void)executor_->freeze();
  ASSERT_TRUE(executor_->leave(place(0, kSourceOfB)).ok());
  EXPECT_TRUE(executor_->reached());
}

TEST_F(Leaving, CannotEndBeforeWhatHasStarted) {
  feed(0);
  feed(1);
  (void)executor_->freeze();
  const Status early = executor_->leave(place(0, kB));
  EXPECT_EQ(early.code(), Code::kFailedPrecondition);
  EXPECT_THAT(early.message(), HasSubstr("service b has started micro-batch 0"));
  feed(2);
  EXPECT_EQ(agreed_.started.size(), 2U) << "still frozen";
  ASSERT_TRUE(executor_->leave(place(0, kC)).ok());
}

TEST(Executor, OneShotsAndServicesShareALaneByPriority) {
  Plan plan;
  plan.add_lane({.name = "pool"});
  const ChannelId own = plan.add_channel({.name = "own", .slots = 2, .initial = 1});
  plan.add_service({.name = "cell", .lane = 0, .priority = 2, .inputs = {own}, .outputs = {own}});
  ManualLane a;
  auto executor = make(plan, {&a});
  executor->run_until(2);
  ASSERT_TRUE(executor->submit(0, {.name = "urgent", .priority = 1}).ok());
  ASSERT_TRUE(executor->submit(0, {.name = "later", .priority = 9}).ok());
  while (executor->poll({})) executor->complete(a.tickets.back());
  EXPECT_THAT(a.started, ElementsAre("urgent", "cell", "cell", "later"));
}

}  // namespace
}  // namespace corro::graph
