// Large operations of private memory: one behind the other in the same staging buffers, and the
// lanes of a rank that share them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/buckets.h"
#include "testing/named_support.h"

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

/// The lanes of a rank that trains, on one host or several, without private memory that others may
/// read: world, buckets, and both lanes of named operations.
class StagingOfAllLanes : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int32_t kRanks = 4;
  static constexpr size_t kCount = size_t{1} << 18U;  ///< Of f32: 1 MiB.
  /// Of f32: 512 KiB, the most of a tensor that becomes a part of a plan among several hosts.
  static constexpr size_t kLearned = size_t{1} << 17U;
  /// Among several hosts a planned operation runs in a buffer, so that it can be taken back.
  static constexpr int64_t kLearnedBytes = 4 * kLearned;
  static constexpr int64_t kBound = 4 << 20;
  const bool is_one_host_ = GetParam() == "0000";

  StagingOfAllLanes() {
    for (int32_t r = 0; r < kRanks; ++r) {
      data_.push_back({.name = "large", .data = Buffer(kCount, 1.0F)});
      named_.push_back({.name = "large", .data = Buffer(is_one_host_ ? kCount : kLearned, 1.0F)});
      for (int i = 0; i < 31; ++i)
        small_.push_back({.name = "small " + std::to_string(i), .data = Buffer(1)});
    }
  }
  Tensor& data(int32_t rank) { return data_[static_cast<size_t>(rank)]; }

  void run_world() {
    for (const Status& status : world_.run_all([&](int32_t r) { return data(r).request(); }))
      ASSERT_TRUE(status.ok()) << status.to_string();
  }
  /// A step that becomes a plan when it repeats.
  void run_named() {
    World::Works works;
    for (int32_t r = 0; r < kRanks; ++r) {
      works.push_back(submit_named(world_, r, named_[static_cast<size_t>(r)].request()));
      for (size_t i = 0; i < 31; ++i)
        works.push_back(submit_named(world_, r, small_[static_cast<size_t>(r) * 31 + i].request()));
    }
    world_.run(works);
    for (const auto& work : works) ASSERT_TRUE(work->status().ok()) << work->status().to_string();
  }
  void run_buckets() {
    std::vector<std::unique_ptr<runtime::Buckets>> sets;
    for (int32_t r = 0; r < kRanks; ++r) {
      runtime::Engine& engine = world_.engine(r);
      const runtime::BucketPart part{.name = "gradient",
                                     .data = reinterpret_cast<std::byte*>(data(r).data.data()),
                                     .count = kCount};
      sets.push_back(runtime::Buckets::create(engine, engine.world(), {part}, {}).value());
      (void)sets.back()->ready(0);
      ASSERT_TRUE(sets.back()->close(0, 0).ok());
    }
    const auto over = [](const auto& set) { return set->over(runtime::Buckets::kAll); };
    for (int i = 0; i < 1'000 && !std::ranges::all_of(sets, over); ++i) world_.poll_rounds(10);
    EXPECT_TRUE(std::ranges::all_of(sets, over));
    expect_bounded();
    for (int32_t r = 0; r < kRanks; ++r) sets[static_cast<size_t>(r)]->destroy(world_.engine(r));
  }
  void expect_bounded() {
    for (int32_t r = 0; r < kRanks; ++r) {
      struct stat info{};
      ASSERT_EQ(fstat(world_.engine(r).segment()->fd(), &info), 0);
      EXPECT_LE(512 * info.st_blocks, kBound + (is_one_host_ ? 0 : kLearnedBytes)) << "rank " << r;
    }
  }

  World world_{{.size = kRanks,
                .hosts = hosts_of(GetParam()),
                .private_reads = false,
                .selection = two_level_everywhere()}};
  std::vector<Tensor> data_, named_, small_;
};

TEST_P(StagingOfAllLanes, TakesAtMost4MiBOfARankAndThePlansBuffer) {
  for (int turn = 0; turn < 2; ++turn) {
    run_world();
    for (int step = 0; step < 7; ++step) run_named();
    const uint64_t messages = named_messages(world_);
    run_named();
    EXPECT_EQ(named_messages(world_), messages) << "the step is not a plan";
    run_buckets();
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, StagingOfAllLanes, ::testing::Values("0000", "0011", "0001"),
                         [](const auto& test) { return "of_" + test.param; });

}  // namespace
}  // namespace corro::testing
