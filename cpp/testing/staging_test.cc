// Large operations of private memory, one behind the other in the same staging buffers.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;
using Buffer = std::vector<float>;

/// Elements of operations that fill a part of a staging buffer, several of them, and all of them
/// more than once.
constexpr uint64_t kPart = 5'000;
constexpr uint64_t kSeveral = 100'000;
constexpr uint64_t kAll = 400'000;

OpRequest request(OpKind kind, Buffer& data) {
  OpRequest made;
  made.kind = kind;
  made.dtype = DType::kF32;
  made.input = reinterpret_cast<const std::byte*>(data.data());
  made.output = reinterpret_cast<std::byte*>(data.data());
  made.count = data.size();
  return made;
}

TEST(Staging, ABufferIsNotFilledAgainBeforeASlowRankHasTakenWhatIsInIt) {
  World world({.size = 2, .private_reads = false});
  std::vector<Buffer> first(2), second(2);
  const auto submit = [&](int32_t rank) {
    const auto r = static_cast<size_t>(rank);
    first[r].assign(kPart, rank == 0 ? 1.0F : -1.0F);
    second[r].assign(kAll, rank == 0 ? 2.0F : -1.0F);
    return world.submit(
        rank, {request(OpKind::kBroadcast, first[r]), request(OpKind::kBroadcast, second[r])});
  };
  // The slow rank is in both operations and stops; the root puts all that it may put.
  World::Works works = {submit(1), submit(0)};
  world.stop(0);
  world.poll_rounds(10);
  world.resume(0);
  world.stop(1);
  world.poll_rounds(10);
  world.resume(1);
  world.run(works);
  EXPECT_EQ(first[1], first[0]);
  EXPECT_EQ(second[1], second[0]);
}

class StagingInAnyOrder : public ::testing::TestWithParam<uint64_t> {};

TEST_P(StagingInAnyOrder, OperationsDoNotTouchEachOther) {
  constexpr int32_t kRanks = 3;
  const std::vector<uint64_t> counts = {kPart, kAll, kPart, kPart, kSeveral, kPart, kAll};
  World world({.size = kRanks, .seed = GetParam(), .private_reads = false});
  std::mt19937_64 random(GetParam());
  std::vector<std::vector<Buffer>> data(kRanks);
  World::Works works;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    auto& own = data[static_cast<size_t>(rank)];
    std::vector<OpRequest> unit;
    for (size_t i = 0; i < counts.size(); ++i) {
      own.emplace_back(counts[i], static_cast<float>((i + 1) * static_cast<size_t>(rank + 1)));
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      unit.push_back(request(i % 2 == 0 ? OpKind::kBroadcast : OpKind::kAllreduce, own[i]));
    }
    works.push_back(world.submit(rank, std::move(unit)));
  }
  // Ranks stand still for a while, now and then.
  for (int i = 0; i < 60; ++i) {
    const auto rank = static_cast<int32_t>(random() % kRanks);
    world.stop(rank);
    world.poll_rounds(static_cast<int>(random() % 4));
    world.resume(rank);
  }
  world.run(works);
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto unit = static_cast<float>(i + 1);
    const Buffer expected(counts[i], i % 2 == 0 ? unit : 6 * unit);
    for (const auto& own : data) EXPECT_TRUE(own[i] == expected) << "operation " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, StagingInAnyOrder, ::testing::Range(uint64_t{1}, uint64_t{21}));

}  // namespace
}  // namespace corro::testing
