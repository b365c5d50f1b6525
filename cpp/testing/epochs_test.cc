// Epochs: members come and go while engines, connections, arenas and gradients stay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "runtime/buckets.h"
#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;

class Epochs : public ::testing::TestWithParam<bool> {
 protected:
  /// A bucket in a member's arena, which stays where it is over all epochs.
  struct Bucket {
    float* data;
    static constexpr size_t kCount = 100'000;
  };

  Bucket bucket_of(int32_t member) {
    std::byte* memory =
        world_.engine(member).segment()->allocate(Bucket::kCount * sizeof(float)).value();
    return {reinterpret_cast<float*>(memory)};
  }

  /// Members sum their buckets, each filled with its member id + 1; true if all have the sum.
  void expect_sum(const std::vector<int32_t>& members, std::vector<Bucket>& buckets) {
    World::Works works;
    float sum = 0;
    for (const int32_t member : members) {
      const Bucket& bucket = buckets[static_cast<size_t>(member)];
      std::fill_n(bucket.data, Bucket::kCount, static_cast<float>(member + 1));
      sum += static_cast<float>(member + 1);
      auto* bytes = reinterpret_cast<std::byte*>(bucket.data);
      works.push_back(world_.submit(member, {{.kind = OpKind::kAllreduce,
                                              .dtype = DType::kF32,
                                              .input = bytes,
                                              .output = bytes,
                                              .count = Bucket::kCount}}));
    }
    world_.run(works);
    for (size_t i = 0; i < members.size(); ++i) {
      ASSERT_TRUE(works[i]->status().ok()) << works[i]->status().to_string();
      const Bucket& bucket = buckets[static_cast<size_t>(members[i])];
      EXPECT_EQ(std::count(bucket.data, bucket.data + Bucket::kCount, sum),
                static_cast<std::ptrdiff_t>(Bucket::kCount));
    }
  }

  World world_{{.size = 3, .board = GetParam()}};
};

TEST_P(Epochs, AMemberJoinsAndAnotherLeavesWhileArenasStay) {
  std::vector<Bucket> buckets = {bucket_of(0), bucket_of(1), bucket_of(2)};
  expect_sum({0, 1, 2}, buckets);

  const int32_t joined = world_.add_engine();
  buckets.push_back(bucket_of(joined));
  world_.start_epoch(1, {0, 1, 2, joined});
  EXPECT_EQ(world_.engine(joined).world().facts().rank, 3);
  expect_sum({0, 1, 2, joined}, buckets);

  // Member 0 is dropped: the others' ranks move up.
  world_.start_epoch(2, {1, 2, joined});
  EXPECT_EQ(world_.engine(joined).world().facts().rank, 2);
  expect_sum({1, 2, joined}, buckets);
}

TEST_P(Epochs, ALostMembersSurvivorsGoOnInTheNextEpoch) {
  std::vector<Bucket> buckets = {bucket_of(0), bucket_of(1), bucket_of(2)};
  expect_sum({0, 1, 2}, buckets);
  world_.kill(1);
  const auto failed = world_.submit(0, {{.kind = OpKind::kBarrier}});
  EXPECT_EQ(failed->status().code(), Code::kUnavailable) << failed->status().to_string();
  world_.start_epoch(1, {0, 2});
  for (const int32_t member : {0, 2}) world_.engine(member).peers().remove(1);
  expect_sum({0, 2}, buckets);
}

TEST_P(Epochs, WordsOfWhoIsThereAlreadyAreKept) {
  const std::vector<runtime::MemberId> members = {0, 1, 2};
  // Rank 2 names something in the next epoch, and says so to rank 0, which is still in this one.
  ASSERT_TRUE(world_.engine(2).start_epoch(1, members).ok());
  float value = 1;
  collective::OpRequest request{.kind = OpKind::kAllreduce,
                                .dtype = DType::kF32,
                                .input = reinterpret_cast<const std::byte*>(&value),
                                .output = reinterpret_cast<std::byte*>(&value),
                                .count = 1,
                                .name = "x"};
  World::Works works;
  std::array<float, 3> values = {1, 2, 4};
  const auto submit = [&](size_t rank) {
    request.input = reinterpret_cast<const std::byte*>(&values[rank]);
    request.output = reinterpret_cast<std::byte*>(&values[rank]);
    auto work = std::make_shared<runtime::WorkState>(std::vector{request});
    work->named = true;
    runtime::Engine& engine = world_.engine(static_cast<int32_t>(rank));
    engine.submit(engine.world(), work, world_.now());
    works.push_back(work);
  };
  submit(2);
  world_.poll_rounds(20);
  for (const int32_t rank : {0, 1}) ASSERT_TRUE(world_.engine(rank).start_epoch(1, members).ok());
  submit(0);
  submit(1);
  world_.run(works);
  for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
  EXPECT_EQ(values[0], 7);
}

TEST_P(Epochs, AGroupWithARemovedMemberCanBeDestroyed) {
  runtime::Group* old = world_.engine(0).create_group({0, 1}).value();
  float value = 1;
  const collective::OpRequest send{.kind = OpKind::kSend,
                                   .dtype = DType::kF32,
                                   .root = 1,
                                   .input = reinterpret_cast<const std::byte*>(&value),
                                   .count = 1};
  const auto sent = world_.submit(world_.engine(0), *old, {send});
  world_.poll_rounds(10);
  world_.kill(1);
  world_.start_epoch(1, {0, 2});
  for (const int32_t member : {0, 2}) world_.engine(member).peers().remove(1);
  EXPECT_TRUE(sent->done());
  EXPECT_TRUE(world_.engine(0).destroy_group(*old).ok());
}

TEST_P(Epochs, GroupsEndWithTheirEpochAndLateWordsOfItAreDropped) {
  runtime::Group* old = world_.engine(0).create_group({0, 1}).value();
  const auto waits = world_.submit(world_.engine(0), *old, {{.kind = OpKind::kBarrier}});
  world_.poll_rounds(10);
  EXPECT_FALSE(waits->done());
  world_.start_epoch(1, {0, 1, 2});
  world_.poll_rounds(10);
  ASSERT_TRUE(waits->done());
  EXPECT_EQ(waits->status().code(), Code::kCancelled) << waits->status().to_string();
  EXPECT_TRUE(world_.engine(0).destroy_group(*old).ok());
  std::vector<Bucket> buckets = {bucket_of(0), bucket_of(1), bucket_of(2)};
  expect_sum({0, 1, 2}, buckets);
}

/// Gradients of every member in its arena, and their set of buckets, which is remade in each epoch.
class EpochsOfBuckets : public Epochs {
 protected:
  static constexpr size_t kParts = 2;
  struct Gradients {
    std::span<float> memory;
    std::unique_ptr<runtime::Buckets> set;

    [[nodiscard]] std::span<float> part(uint32_t i) const {
      return memory.subspan(i * memory.size() / kParts, memory.size() / kParts);
    }
  };

  ~EpochsOfBuckets() override {
    for (auto& [member, own] : gradients_) own.set->destroy(world_.engine(member));
  }

  /// The set of the member's world, over the memory that the member had before.
  void make_set(int32_t member) {
    Gradients& own = gradients_[member];
    runtime::Engine& engine = world_.engine(member);
    if (own.set != nullptr) own.set->destroy(engine);
    if (own.memory.empty()) {
      own.memory = {bucket_of(member).data, Bucket::kCount};
      std::ranges::fill(own.memory, 0.0F);
    }
    std::vector<runtime::BucketPart> parts;
    for (uint32_t i = 0; i < kParts; ++i) {
      parts.push_back({.name = std::to_string(i),
                       .bucket = i,
                       .data = reinterpret_cast<std::byte*>(own.part(i).data()),
                       .count = own.part(i).size()});
    }
    own.set =
        runtime::Buckets::create(engine, engine.world(), parts, {.reduce_op = ReduceOp::kAverage})
            .value();
  }
  void add(int32_t member, uint32_t i, float value) {
    for (float& x : gradients_[member].part(i)) x += value;
    (void)gradients_[member].set->ready(i);
  }
  /// Ends the generation on these members; all have `value` everywhere.
  void expect_average(const std::vector<int32_t>& members, float value) {
    for (const int32_t member : members)
      ASSERT_TRUE(
          gradients_[member].set->close(gradients_[member].set->set().generation(), 0).ok());
    world_.poll_rounds(500);
    for (const int32_t member : members) {
      Gradients& own = gradients_[member];
      const Status over = own.set->wait(runtime::Buckets::kAll, Duration::zero());
      ASSERT_TRUE(over.ok()) << over.to_string();
      ASSERT_TRUE(own.set->next().ok());
      EXPECT_THAT(own.memory, ::testing::Each(value)) << "member " << member;
    }
  }

  std::map<int32_t, Gradients> gradients_;
};

TEST_P(EpochsOfBuckets, SetsAreRemadeOverTheSameMemoryAndLoseNothingOfIt) {
  for (const int32_t member : {0, 1, 2}) make_set(member);
  for (const int32_t member : {0, 1, 2}) {
    for (uint32_t i = 0; i < kParts; ++i) add(member, i, static_cast<float>(member + 1));
  }
  expect_average({0, 1, 2}, 2);

  // In the middle of a generation: one part has come everywhere, the other on one member.
  for (const int32_t member : {0, 1, 2}) add(member, 0, static_cast<float>(member));
  add(0, 1, 4);
  world_.poll_rounds(500);
  const int32_t joined = world_.add_engine();
  world_.start_epoch(1, {0, 1, 2, joined});
  for (const int32_t member : {0, 1, 2}) {
    const Gradients& own = gradients_[member];
    EXPECT_EQ(own.set->wait(runtime::Buckets::kAll, Duration::zero()).code(), Code::kCancelled);
    EXPECT_THAT(own.part(0), ::testing::Each(3.0F)) << "it had been averaged";
    EXPECT_THAT(own.part(1), ::testing::Each(member == 0 ? 6.0F : 2.0F)) << "it had not";
  }

  // The step goes on in the next epoch, with what had come.
  for (const int32_t member : {0, 1, 2, joined}) make_set(member);
  for (const int32_t member : {0, 1, 2}) {
    for (uint32_t i = 0; i < kParts; ++i) add(member, i, 0);
  }
  add(joined, 0, 3);
  add(joined, 1, 2);
  expect_average({0, 1, 2, joined}, 3);

  world_.start_epoch(2, {1, 2, joined});
  for (const int32_t member : {1, 2, joined}) {
    make_set(member);
    for (uint32_t i = 0; i < kParts; ++i) add(member, i, static_cast<float>(member));
  }
  expect_average({1, 2, joined}, 5);
}

TEST_P(EpochsOfBuckets, AnEndedEpochLeavesNoMemoryBehind) {
  const std::vector<int32_t> everyone = {0, 1, 2};
  const auto committed = [this] {
    struct stat status{};
    EXPECT_EQ(fstat(world_.engine(0).segment()->fd(), &status), 0);
    return status.st_blocks;
  };
  for (const int32_t member : everyone) make_set(member);
  expect_average(everyone, 0);
  std::vector<blkcnt_t> blocks;
  for (uint32_t epoch = 1; epoch <= 4; ++epoch) {
    world_.start_epoch(epoch, everyone);
    for (const int32_t member : everyone) make_set(member);
    expect_average(everyone, 0);
    for (const Status& status :
         world_.run_all([](int32_t) { return OpRequest{.kind = OpKind::kBarrier}; }))
      EXPECT_TRUE(status.ok()) << status.to_string();
    blocks.push_back(committed());
  }
  EXPECT_EQ(blocks.back(), blocks[1]);
}

INSTANTIATE_TEST_SUITE_P(All, EpochsOfBuckets, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "board" : "streams"; });
INSTANTIATE_TEST_SUITE_P(All, Epochs, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "board" : "streams"; });

}  // namespace
}  // namespace corro::testing
