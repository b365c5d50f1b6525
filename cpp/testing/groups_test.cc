// Many groups: alive at once, and made and dropped one after the other, also beside a dead member.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>

#include "testing/named_support.h"
#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;

/// What a rank's shared memory takes of the machine.
int64_t committed_bytes(runtime::Engine& engine) {
  struct stat info{};
  EXPECT_EQ(fstat(engine.segment()->fd(), &info), 0);
  return int64_t{512} * info.st_blocks;
}

OpRequest barrier() { return {.kind = OpKind::kBarrier}; }

TEST(Groups, AsManyAsOneLikesAreAliveAtOnce) {
  constexpr size_t kGroups = 257;
  World world({.size = 2, .heap_bytes = size_t{256} << 20U});
  std::vector<std::array<runtime::Group*, 2>> groups(kGroups);
  for (auto& pair : groups) {
    for (int32_t r = 0; r < 2; ++r)
      pair[static_cast<size_t>(r)] = world.engine(r).create_group({0, 1}).value();
  }
  World::Works works;
  for (auto& pair : groups) {
    for (int32_t r = 0; r < 2; ++r)
      works.push_back(world.submit(world.engine(r), *pair[static_cast<size_t>(r)], {barrier()}));
  }
  world.run(works);
  for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
}

/// Every rank of the list runs a barrier on its group.
void expect_usable(World& world, const std::vector<std::pair<int32_t, runtime::Group*>>& groups) {
  World::Works works;
  for (const auto& [rank, group] : groups)
    works.push_back(world.submit(world.engine(rank), *group, {barrier()}));
  world.run(works);
  for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
}

/// Of the operations of rank 0, which are not over, so many wait in the midst of it for rank 1.
ptrdiff_t in_flight(World& world) {
  const auto seen = world.engine(0).recorder().snapshot();
  return std::ranges::count_if(seen.recent, [](const obs::OpSnapshot& op) {
    return op.phase != obs::Phase::kQueued && op.waiting_for == 1;
  });
}

/// An allreduce of so many floats, 100 times.
struct Depth {
  bool board = true;
  uint64_t count = 1;
  ptrdiff_t in_flight = 64;
};

class InFlight : public ::testing::TestWithParam<Depth> {};

TEST_P(InFlight, AreAsManyOperationsOfAGroupAsItsLinesAndSlotsHold) {
  constexpr size_t kMany = 100;
  const Depth& c = GetParam();
  World world({.size = 2, .board = c.board});
  std::vector<std::vector<float>> data(2 * kMany, std::vector<float>(c.count, 1));
  const auto submit = [&](int32_t rank) {
    World::Works works;
    for (size_t i = 0; i < kMany; ++i) {
      auto& own = data[2 * i + static_cast<size_t>(rank)];
      OpRequest request{.kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = c.count};
      request.output = reinterpret_cast<std::byte*>(own.data());
      request.input = request.output;
      works.push_back(world.submit(rank, {request}));
    }
    return works;
  };
  World::Works works = submit(0);
  world.poll_rounds(20);
  EXPECT_EQ(in_flight(world), c.in_flight);
  std::ranges::move(submit(1), std::back_inserter(works));
  world.run(works);
  for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
  for (const auto& result : data) EXPECT_THAT(result, ::testing::Each(2.0F));
}

INSTANTIATE_TEST_SUITE_P(Paths, InFlight,
                         ::testing::Values(Depth{.count = 8}, Depth{.count = 9, .in_flight = 16},
                                           Depth{.board = false, .count = 4096},
                                           Depth{.board = false, .count = 4097, .in_flight = 16}));

class GroupKeys : public ::testing::TestWithParam<bool> {
 protected:
  runtime::Group* make(int32_t rank, const std::vector<int32_t>& ranks,
                       const std::string& name = "") {
    return world_.engine(rank).create_group(ranks, name).value();
  }
  World world_{{.size = 3, .board = GetParam(), .timeout = std::chrono::seconds(1)}};
};

TEST_P(GroupKeys, OnlyMembersMakeTheirGroups) {
  expect_usable(world_, {{1, make(1, {1, 2})}, {2, make(2, {1, 2})}});
  expect_usable(world_, {{0, make(0, {0, 2})}, {2, make(2, {0, 2})}});
  EXPECT_EQ(make(0, {1, 2}), nullptr);
}

TEST_P(GroupKeys, NamesFindEachOtherInAnyOrder) {
  runtime::Group* data0 = make(0, {0, 1}, "data");
  runtime::Group* model0 = make(0, {0, 1}, "model");
  runtime::Group* model1 = make(1, {0, 1}, "model");
  runtime::Group* data1 = make(1, {0, 1}, "data");
  const auto started = world_.submit(world_.engine(0), *data0, {barrier()});
  const auto other = world_.submit(world_.engine(1), *model1, {barrier()});
  world_.poll_rounds(200);
  EXPECT_FALSE(started->done()) << "they are different groups";
  EXPECT_FALSE(other->done());
  world_.run({started, world_.submit(world_.engine(1), *data1, {barrier()}), other,
              world_.submit(world_.engine(0), *model0, {barrier()})});
  EXPECT_TRUE(started->status().ok()) << started->status().to_string();
  EXPECT_TRUE(other->status().ok()) << other->status().to_string();
}

TEST_P(GroupKeys, TheSecondGroupOfTheSameRanksIsAnotherOne) {
  const std::vector<int32_t> ranks = {0, 1};
  runtime::Group* first0 = make(0, ranks);
  expect_usable(world_, {{0, first0}, {1, make(1, ranks)}});
  EXPECT_FALSE(world_.engine(0).create_group({0, 0}).ok());
  EXPECT_TRUE(world_.engine(0).destroy_group(*first0).ok());
  expect_usable(world_, {{0, make(0, ranks)}, {1, make(1, ranks)}});
}

/// Both groups are "model"; every rank that lists another one with another list is told.
TEST_P(GroupKeys, OneNameForDifferentMembersIsAnErrorThatNamesBoth) {
  const std::array<runtime::Group*, 2> groups = {make(0, {0, 1}, "model"),
                                                 make(1, {1, 0}, "model")};
  World::Works works;
  for (int32_t r = 0; r < 2; ++r)
    works.push_back(world_.submit(world_.engine(r), *groups[static_cast<size_t>(r)], {barrier()}));
  world_.run(works);
  for (const auto& work : works) {
    EXPECT_EQ(work->status().code(), Code::kInvalidArgument) << work->status().to_string();
    EXPECT_THAT(
        work->status().message(),
        ::testing::AllOf(::testing::HasSubstr("ranks disagree on the members of this group: rank "),
                         ::testing::HasSubstr("[0, 1]"), ::testing::HasSubstr("[1, 0]")));
  }
  expect_usable(world_, {{0, &world_.engine(0).world()},
                         {1, &world_.engine(1).world()},
                         {2, &world_.engine(2).world()}});
}

/// Ranks 0 and 1 agree; rank 2 takes them for members of a group of its own.
TEST_P(GroupKeys, AMemberThatTheOthersDoNotKnowIsTold) {
  runtime::Group* pair0 = make(0, {0, 1}, "model");
  runtime::Group* pair1 = make(1, {0, 1}, "model");
  runtime::Group* triple = make(2, {0, 1, 2}, "model");
  const auto alone = world_.submit(world_.engine(2), *triple, {barrier()});
  const auto first = world_.submit(world_.engine(0), *pair0, {barrier()});
  const auto second = world_.submit(world_.engine(1), *pair1, {barrier()});
  world_.run({first, second, alone});
  EXPECT_EQ(alone->status().code(), Code::kInvalidArgument) << alone->status().to_string();
  EXPECT_THAT(alone->status().message(),
              ::testing::AllOf(::testing::HasSubstr("[0, 1]"), ::testing::HasSubstr("[0, 1, 2]")));
}

TEST_P(GroupKeys, NamedOperationsSeeItToo) {
  const std::array<runtime::Group*, 2> groups = {make(0, {0, 1, 2}, "model"),
                                                 make(1, {1, 2}, "model")};
  World::Works works;
  for (int32_t r = 0; r < 2; ++r) {
    OpRequest named = barrier();
    named.name = "x";
    works.push_back(
        submit_named(world_, world_.engine(r), *groups[static_cast<size_t>(r)], {named}));
  }
  world_.run(works);
  EXPECT_EQ(works[0]->status().code(), Code::kInvalidArgument) << works[0]->status().to_string();
}

INSTANTIATE_TEST_SUITE_P(All, GroupKeys, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "board" : "streams"; });

TEST(Groups, OfADeadMemberThatLaggedAreFreed) {
  World world({.size = 3});
  const int64_t before = committed_bytes(world.engine(0));
  World::Works works;
  std::array<std::vector<runtime::Group*>, 2> groups;
  for (int i = 0; i < 50; ++i) {
    for (int32_t r = 0; r < 3; ++r) {
      runtime::Group* group = world.engine(r).create_group({0, 1, 2}).value();
      auto work = world.submit(world.engine(r), *group, {barrier()});
      if (r == 2) continue;
      works.push_back(work);
      groups[static_cast<size_t>(r)].push_back(group);
    }
  }
  world.stop(2);
  world.poll_rounds(10);
  world.kill(2);
  world.run(works);
  for (int i = 0; i < 1000; ++i) {
    for (int32_t r = 0; r < 2; ++r) {
      auto made = world.engine(r).create_group({0, 1, 2});
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      groups[static_cast<size_t>(r)].push_back(*made);
    }
    for (int32_t r = 0; r < 2; ++r) {
      for (runtime::Group* group : groups[static_cast<size_t>(r)])
        EXPECT_TRUE(world.engine(r).destroy_group(*group).ok());
      groups[static_cast<size_t>(r)].clear();
    }
  }
  // The last ones go when the next is made.
  for (int32_t r = 0; r < 2; ++r) (void)world.engine(r).create_group({0, 1}).value();
  EXPECT_LE(committed_bytes(world.engine(0)), before + (int64_t{2} << 20U));
}

TEST(Groups, ThatOneMemberDroppedWhileAnotherIsLateAreFreed) {
  World world({.size = 2});
  const int64_t before = committed_bytes(world.engine(0));
  for (int i = 0; i < 1000; ++i) {
    std::array<runtime::Group*, 2> group{};
    World::Works works;
    for (int32_t r = 0; r < 2; ++r) {
      group[static_cast<size_t>(r)] = world.engine(r).create_group({0, 1}).value();
      works.push_back(world.submit(world.engine(r), *group[static_cast<size_t>(r)], {barrier()}));
    }
    world.run(works);
    for (int32_t r = 0; r < 2; ++r)
      EXPECT_TRUE(world.engine(r).destroy_group(*group[static_cast<size_t>(r)]).ok());
  }
  EXPECT_LE(committed_bytes(world.engine(0)), before + (int64_t{2} << 20U));
}

}  // namespace
}  // namespace corro::testing
