// Many groups: alive at once, and made and dropped one after the other, also beside a dead member.
#include <gtest/gtest.h>
#include <sys/stat.h>

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

constexpr OpRequest kBarrier{.kind = OpKind::kBarrier};

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
      works.push_back(world.submit(world.engine(r), *pair[static_cast<size_t>(r)], {kBarrier}));
  }
  world.run(works);
  for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
}

TEST(Groups, OfADeadMemberThatLaggedAreFreed) {
  World world({.size = 3});
  const int64_t before = committed_bytes(world.engine(0));
  World::Works works;
  std::array<std::vector<runtime::Group*>, 2> groups;
  for (int i = 0; i < 50; ++i) {
    for (int32_t r = 0; r < 3; ++r) {
      runtime::Group* group = world.engine(r).create_group({0, 1, 2}).value();
      auto work = world.submit(world.engine(r), *group, {kBarrier});
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
      works.push_back(world.submit(world.engine(r), *group[static_cast<size_t>(r)], {kBarrier}));
    }
    world.run(works);
    for (int32_t r = 0; r < 2; ++r)
      EXPECT_TRUE(world.engine(r).destroy_group(*group[static_cast<size_t>(r)]).ok());
  }
  EXPECT_LE(committed_bytes(world.engine(0)), before + (int64_t{2} << 20U));
}

}  // namespace
}  // namespace corro::testing
