// Epochs: members come and go while engines, connections and arenas stay.
#include <gtest/gtest.h>

#include <vector>

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
  EXPECT_EQ(world_.engine(joined).world().rank(), 3);
  expect_sum({0, 1, 2, joined}, buckets);

  // Member 0 is dropped: the others' ranks move up.
  world_.start_epoch(2, {1, 2, joined});
  EXPECT_EQ(world_.engine(joined).world().rank(), 2);
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

INSTANTIATE_TEST_SUITE_P(All, Epochs, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "board" : "streams"; });

}  // namespace
}  // namespace corro::testing
