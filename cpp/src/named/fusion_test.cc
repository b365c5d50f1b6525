#include "named/fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace corro::named {
namespace {

using ::testing::ElementsAre;

Fusible allreduce(uint64_t count, DType dtype = DType::kF32) {
  return {.signature = {.kind = OpKind::kAllreduce, .dtype = dtype, .count = count}};
}

/// The indices of each bucket.
std::vector<std::vector<uint32_t>> indices(const std::vector<Bucket>& buckets) {
  std::vector<std::vector<uint32_t>> all;
  for (const Bucket& bucket : buckets) {
    auto& each = all.emplace_back();
    for (const BucketPart& part : bucket.parts) each.push_back(part.index);
  }
  return all;
}

const FusionOptions kSmall{.threshold_bytes = 1024, .solo_bytes = 1024};

TEST(Fuse, PutsSmallOnesIntoOneBucketAtAlignedOffsets) {
  const std::vector<Fusible> list{allreduce(3), allreduce(16), allreduce(17), allreduce(0)};
  const auto buckets = fuse(list, kSmall);
  ASSERT_EQ(buckets.size(), 1U);
  std::vector<uint64_t> offsets;
  for (const BucketPart& part : buckets[0].parts) offsets.push_back(part.offset_bytes);
  EXPECT_THAT(offsets, ElementsAre(0, 64, 128, 256));
  EXPECT_EQ(buckets[0].as_one.signature.count, 64U) << "all elements, padding included";
}

TEST(Fuse, KeepsOneAloneAsItIs) {
  const std::vector<Fusible> list{allreduce(3)};
  const auto buckets = fuse(list, kSmall);
  ASSERT_EQ(buckets.size(), 1U);
  EXPECT_EQ(buckets[0].as_one.signature.count, 3U) << "in place, no padding";
}

TEST(Fuse, ClosesABucketAtTheThreshold) {
  const std::vector<Fusible> list(5, allreduce(128));
  EXPECT_THAT(indices(fuse(list, kSmall)),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

TEST(Fuse, LooksPastAnotherDtype) {
  const std::vector<Fusible> list{allreduce(8), allreduce(8, DType::kF16), allreduce(8),
                                  allreduce(8, DType::kF16)};
  EXPECT_THAT(indices(fuse(list, kSmall)), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(Fuse, DoesNotLookPastMoreBytesThanTheThreshold) {
  const std::vector<Fusible> list{allreduce(8), allreduce(240, DType::kI32), allreduce(8)};
  EXPECT_THAT(indices(fuse(list, kSmall)),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(Fuse, KeepsLargeOnesAlone) {
  const FusionOptions options{.threshold_bytes = 4096, .solo_bytes = 64};
  const std::vector<Fusible> list{allreduce(16), allreduce(17), allreduce(16)};
  EXPECT_THAT(indices(fuse(list, options)), ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(Fuse, ThresholdZeroFusesNothing) {
  const std::vector<Fusible> list{allreduce(0), allreduce(1), allreduce(1)};
  EXPECT_EQ(fuse(list, {.threshold_bytes = 0}).size(), 3U);
}

TEST(Fuse, KeepsApartWhateverDiffers) {
  std::vector<Fusible> list(6, allreduce(1));
  list[1].signature.reduce_op = ReduceOp::kMax;
  list[2].prescale = 0.5;
  list[3].postscale = 0.5;
  list[4].signature.kind = OpKind::kBroadcast;
  list[5].signature.kind = OpKind::kBroadcast;
  list[5].signature.root = 1;
  EXPECT_EQ(fuse(list, kSmall).size(), 6U);
}

TEST(Fuse, LeavesWhatLooksAtWholeTensorsAlone) {
  std::vector<Fusible> list(3, allreduce(1));
  for (Fusible& op : list) op.signature.reduce_op = ReduceOp::kAdasum;
  EXPECT_EQ(fuse(list, kSmall).size(), 3U);
}

TEST(Fuse, LeavesKindsAloneThatCannotBeConcatenated) {
  for (const OpKind kind :
       {OpKind::kAllgather, OpKind::kReducescatter, OpKind::kAlltoall, OpKind::kBarrier}) {
    Fusible op = allreduce(1);
    op.signature.kind = kind;
    const std::vector<Fusible> list(3, op);
    EXPECT_EQ(fuse(list, kSmall).size(), 3U) << name_of(kind);
  }
}

TEST(Fuse, EveryListIsCutIntoWholeBucketsWithinTheLimits) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Fusible> list(random() % 200);
    for (Fusible& op : list) {
      op = allreduce(random() % 100, random() % 2 == 0 ? DType::kF64 : DType::kU8);
      if (random() % 4 == 0) op.signature.kind = OpKind::kAllgather;
      if (random() % 4 == 0) op.postscale = 0.5;
    }
    const FusionOptions options{.threshold_bytes = random() % 4096,
                                .solo_bytes = 64 + random() % 512};
    const auto buckets = fuse(list, options);
    std::vector<int> seen(list.size(), 0);
    uint32_t previous = 0;
    for (const Bucket& bucket : buckets) {
      ASSERT_FALSE(bucket.parts.empty());
      ASSERT_GE(bucket.parts.front().index, previous);
      previous = bucket.parts.front().index;
      uint64_t end = 0;
      for (const BucketPart& part : bucket.parts) {
        const Fusible& op = list[part.index];
        ++seen[part.index];
        ASSERT_GE(part.index, bucket.parts.front().index);
        ASSERT_EQ(part.offset_bytes % 64, 0U);
        ASSERT_GE(part.offset_bytes, end) << "parts do not overlap";
        end = part.offset_bytes + op.signature.count * size_of(op.signature.dtype);
        ASSERT_EQ(op.signature.dtype, bucket.as_one.signature.dtype);
        ASSERT_EQ(op.postscale, bucket.as_one.postscale);
      }
      const uint64_t bytes = bucket.as_one.signature.count * size_of(bucket.as_one.signature.dtype);
      ASSERT_LE(end, bytes);
      if (bucket.parts.size() > 1) {
        ASSERT_LE(bytes, options.threshold_bytes);
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(list.size()));
    EXPECT_EQ(indices(buckets), indices(fuse(list, options))) << "pure";
  }
}

}  // namespace
}  // namespace corro::named
