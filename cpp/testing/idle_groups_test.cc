// Groups that are idle most of the time: whatever concerns one of them wakes it, and it alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "testing/named_support.h"
#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;

constexpr int32_t kSize = 3;

class IdleGroups : public ::testing::TestWithParam<bool> {
 protected:
  enum class Use { kPlain, kNamed, kPair, kPlan };

  IdleGroups() {
    for (auto& group : groups_) {
      for (int32_t r = 0; r < kSize; ++r)
        group[static_cast<size_t>(r)] = world_.engine(r).create_group({0, 1, 2}).value();
    }
  }

  std::shared_ptr<runtime::WorkState> submit(int32_t rank, size_t group, const OpRequest& request) {
    return world_.submit(world_.engine(rank), *groups_[group][static_cast<size_t>(rank)],
                         {request});
  }
  /// What a rank does with one group in this round; a neighbour's number is received, the sum of
  /// all is made in place.
  std::shared_ptr<runtime::WorkState> use(Use how, int32_t rank, size_t group, float& number) {
    runtime::Engine& engine = world_.engine(rank);
    runtime::Group& own = *groups_[group][static_cast<size_t>(rank)];
    auto* bytes = reinterpret_cast<std::byte*>(&number);
    OpRequest request{.kind = OpKind::kAllreduce, .dtype = DType::kF32};
    request.input = request.output = bytes;
    request.count = 1;
    switch (how) {
      case Use::kPlain:
        return world_.submit(engine, own, {request});
      case Use::kNamed:
        request.name = "x";
        return submit_named(world_, engine, own, {request});
      case Use::kPair: {
        OpRequest send = request, recv = request;
        send.kind = OpKind::kSend;
        send.root = (rank + 1) % kSize;
        recv.kind = OpKind::kRecv;
        recv.root = (rank + kSize - 1) % kSize;
        sent_.push_back(std::make_unique<float>(number));
        send.input = reinterpret_cast<const std::byte*>(sent_.back().get());
        return world_.submit(engine, own, {send, recv});
      }
      case Use::kPlan: {
        graph::Plan plan;
        plan.ranks = kSize;
        plan.add_lane({.name = "all", .order = graph::LaneOrder::kAgreed, .ranks = {0, 1, 2}});
        plan.add_service({.name = "meet", .lane = 0, .operation = graph::OperationSpec{}});
        const auto loaded = engine.load(own, plan, {});
        EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
        unload_.emplace_back([&engine, &own, plan = *loaded] { engine.unload(own, *plan); });
        return (*loaded)->run_until(1);
      }
    }
    return nullptr;
  }

  World world_{{.size = kSize,
                .board = GetParam(),
                .timeout = std::chrono::seconds(2),
                .heap_bytes = size_t{256} << 20U,
                .rests = true}};
  std::array<std::array<runtime::Group*, kSize>, 20> groups_{};
  std::vector<std::unique_ptr<float>> sent_;
  std::vector<std::function<void()>> unload_;
};

TEST_P(IdleGroups, WhateverIsSubmittedToThemIsDone) {
  std::mt19937_64 random(11);
  std::vector<size_t> order(groups_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int round = 0; round < 60; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    const size_t used = 1 + random() % 4;
    std::array<Use, 4> uses{};
    for (Use& one : uses) one = static_cast<Use>(random() % 4);
    std::array<std::array<float, kSize>, 4> numbers{};
    World::Works works;
    for (int32_t r = 0; r < kSize; ++r) {
      for (size_t i = 0; i < used; ++i) {
        float& number = numbers[i][static_cast<size_t>(r)] = static_cast<float>(r + 1);
        works.push_back(use(uses[i], r, order[i], number));
        world_.poll_rounds(static_cast<int>(random() % 8));
      }
    }
    world_.run(works);
    for (const auto& unload : std::exchange(unload_, {})) unload();
    for (const auto& work : works)
      ASSERT_TRUE(work->status().ok()) << "round " << round << ": " << work->status().to_string();
    for (size_t i = 0; i < used; ++i) {
      if (uses[i] == Use::kPlan) continue;
      const bool pair = uses[i] == Use::kPair;
      EXPECT_EQ(numbers[i],
                pair ? (std::array<float, kSize>{3, 1, 2}) : (std::array<float, kSize>{6, 6, 6}));
    }
  }
}

TEST_P(IdleGroups, ALossIsToldToAllOfThem) {
  world_.kill(2);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto work = submit(0, g, {.kind = OpKind::kBarrier});
    ASSERT_TRUE(work->done()) << g;
    EXPECT_EQ(work->status().code(), Code::kUnavailable) << work->status().to_string();
  }
}

TEST_P(IdleGroups, TheFailureOfOneIsItsOwn) {
  world_.run({submit(0, 7, {.kind = OpKind::kBarrier})});
  const auto late = submit(1, 7, {.kind = OpKind::kBarrier});
  world_.run({late});
  EXPECT_EQ(late->status().code(), Code::kDeadlineExceeded) << late->status().to_string();
  World::Works works;
  for (const size_t g : {6U, 8U}) {
    for (int32_t r = 0; r < kSize; ++r) works.push_back(submit(r, g, {.kind = OpKind::kBarrier}));
  }
  world_.run(works);
  for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
}

INSTANTIATE_TEST_SUITE_P(All, IdleGroups, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "board" : "streams"; });

}  // namespace
}  // namespace corro::testing
