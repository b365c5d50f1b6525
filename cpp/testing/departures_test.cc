// A rank that leaves in an orderly way fails what needs it, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;
using ::testing::HasSubstr;

class Departures : public ::testing::TestWithParam<bool> {
 protected:
  using Work = std::shared_ptr<runtime::WorkState>;

  static OpRequest request(OpKind kind, int32_t peer, std::vector<float>& data) {
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    return {.kind = kind,
            .dtype = DType::kF32,
            .root = peer,
            .tag = 3,
            .input = bytes,
            .output = bytes,
            .count = data.size()};
  }
  Work send(int32_t from, int32_t to) {
    return world_.submit(from, {request(OpKind::kSend, to, message_)});
  }
  Work recv(int32_t at, int32_t from, std::vector<float>& into) {
    return world_.submit(at, {request(OpKind::kRecv, from, into)});
  }
  static void expect_left(const Work& work, int32_t rank) {
    ASSERT_TRUE(work->done());
    EXPECT_EQ(work->status().code(), Code::kUnavailable) << work->status().to_string();
    EXPECT_THAT(work->status().message(), HasSubstr(std::to_string(rank) + " has left the job"));
    EXPECT_EQ(work->status().detail()->rank, rank);
  }
  World::Works run_plan(const graph::Plan& plan) {
    World::Works runs;
    for (int32_t r = 0; r < 3; ++r) {
      runtime::Engine& engine = world_.engine(r);
      const auto loaded = engine.load(engine.world(), plan, {});
      EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
      runs.push_back((*loaded)->run_until(1));
    }
    return runs;
  }
  void leave(int32_t rank) {
    world_.engine(rank).close();
    world_.stop(rank);
  }

  World world_{{.size = 3, .board = GetParam()}};
  std::vector<float> message_ = std::vector<float>(8, 7.0F);
};

/// As a receive without a source does: one from every other rank, of which some stay posted.
TEST_P(Departures, AReceiveFailsAloneWhenItsSenderLeaves) {
  std::vector<float> of_one(8), of_one_again(8), of_two(8), of_zero(8);
  const Work first = recv(0, 1, of_one);
  const Work waits = recv(0, 2, of_two);
  const Work waits_elsewhere = recv(2, 0, of_zero);
  world_.run({first, send(1, 0)});
  EXPECT_TRUE(first->status().ok()) << "what it had sent is received";
  const Work posted = recv(0, 1, of_one_again);
  leave(1);
  world_.run({posted});
  expect_left(posted, 1);
  world_.poll_rounds(1000);
  EXPECT_FALSE(waits->done()) << waits->status().to_string();
  EXPECT_FALSE(waits_elsewhere->done()) << waits_elsewhere->status().to_string();

  const World::Works works = {waits, send(2, 0), waits_elsewhere, send(0, 2)};
  world_.run(works);
  for (const Work& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
  EXPECT_EQ(of_two, message_);
  EXPECT_EQ(of_zero, message_);
}

TEST_P(Departures, WhatARankSentBeforeItLeftIsReceivedLater) {
  world_.run({send(1, 0)});
  leave(1);
  world_.poll_rounds(100);
  std::vector<float> into(8), more(8);
  const Work comes = recv(0, 1, into);
  const Work never = recv(0, 1, more);
  world_.run({comes, never});
  EXPECT_TRUE(comes->status().ok()) << comes->status().to_string();
  EXPECT_EQ(into, message_);
  expect_left(never, 1);
}

TEST_P(Departures, ASendToARankThatHasLeftFailsAlone) {
  leave(1);
  std::vector<float> into(8);
  const Work never = send(0, 1);
  const Work waits = recv(0, 2, into);
  world_.run({never});
  expect_left(never, 1);
  const World::Works works = {waits, send(2, 0)};
  world_.run(works);
  for (const Work& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
}

/// Of three ranks: rank 0 takes what rank 1 gives, and rank 2 does something of its own.
graph::Plan giving() {
  graph::Plan plan;
  plan.ranks = 3;
  for (const uint32_t rank : {0U, 1U, 2U})
    plan.add_lane({.name = "cpu" + std::to_string(rank), .ranks = {rank}});
  const auto channel = plan.add_channel({.name = "c", .slots = 1, .slot_bytes = 64});
  plan.add_service({.name = "gives", .lane = 1, .outputs = {channel}});
  plan.add_service({.name = "takes", .lane = 0, .inputs = {channel}});
  plan.add_service({.name = "apart", .lane = 2});
  return plan;
}

/// The others are told that it stops: they take part in it.
TEST_P(Departures, APlanThatNeedsTheRankStopsAndItsGroupGoesOn) {
  const World::Works runs = run_plan(giving());
  std::vector<float> into(8);
  const Work waits = recv(2, 0, into);
  world_.poll_rounds(100);
  const Time before = world_.now();
  leave(1);
  world_.run({runs[0], runs[2]});
  EXPECT_GE(world_.now() - before, std::chrono::seconds(1)) << "STOP could have said why";
  expect_left(runs[0], 1);
  expect_left(runs[2], 1);
  EXPECT_THAT(runs[0]->status().message(), HasSubstr("service c from rank 1"));
  const World::Works works = {waits, send(0, 2)};
  world_.run(works);
  for (const Work& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
}

/// STOP may still say why. Where members leave since the epoch ends, nobody says it.
TEST_P(Departures, APlanWaitsForAReasonUnlessTheEpochEnds) {
  const World::Works runs = run_plan(giving());
  world_.poll_rounds(100);
  world_.engine(0).expect_epoch_end();
  const Time before = world_.now();
  leave(1);
  world_.run({runs[0]});
  EXPECT_LT(world_.now() - before, std::chrono::milliseconds(500));
  expect_left(runs[0], 1);
}

/// A collective needs every member of its group.
TEST_P(Departures, ACollectiveFailsWithItsGroupAndOtherGroupsGoOn) {
  std::vector<runtime::Group*> pair;
  for (const int32_t r : {0, 2}) pair.push_back(world_.engine(r).create_group({0, 2}).value());
  leave(1);
  const World::Works need_it = {world_.submit(0, {{.kind = OpKind::kBarrier}}),
                                world_.submit(2, {{.kind = OpKind::kBarrier}})};
  world_.run(need_it);
  for (const Work& work : need_it) expect_left(work, 1);
  const World::Works works = {
      world_.submit(world_.engine(0), *pair[0], {{.kind = OpKind::kBarrier}}),
      world_.submit(world_.engine(2), *pair[1], {{.kind = OpKind::kBarrier}})};
  world_.run(works);
  for (const Work& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
}

INSTANTIATE_TEST_SUITE_P(All, Departures, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "board" : "streams"; });

}  // namespace
}  // namespace corro::testing
