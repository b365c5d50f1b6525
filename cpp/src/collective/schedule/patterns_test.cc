#include "collective/schedule/patterns.h"

#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace corro::collective {
namespace {

TEST(Slice, CoversTheWholeInOrderAndNearlyEvenly) {
  for (const uint64_t count : {0U, 1U, 6U, 7U, 100U}) {
    for (const uint64_t parts : {1U, 3U, 7U, 130U}) {
      uint64_t next = 0;
      for (uint64_t i = 0; i < parts; ++i) {
        const Range range = slice(count, parts, i);
        EXPECT_EQ(range.begin, next);
        EXPECT_LE(range.count, slice(count, parts, 0).count);
        EXPECT_GE(range.count + 1, slice(count, parts, 0).count);
        next += range.count;
      }
      EXPECT_EQ(next, count);
    }
  }
  EXPECT_EQ(slice(Range{10, 7}, 2, 1), (Range{14, 3}));
}

TEST(Shares, CoverTheWholeInOrder) {
  std::mt19937_64 random(1);
  for (int32_t n = 1; n <= 12; ++n) {
    for (int32_t k = 0; k <= 12; ++k) {
      const Shares shares(n, k);
      // Counts near the largest, too: products of counts and weights do not overflow.
      for (const uint64_t count : {uint64_t{0}, random() % 1000, UINT64_MAX / 2}) {
        uint64_t next = 0;
        for (int32_t member = 0; member < n + k; ++member) {
          const Range range = shares.of(member, count);
          EXPECT_EQ(range.begin, next);
          EXPECT_TRUE(shares.owns(member) || range.count == 0);
          next += range.count;
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

TEST(Shares, AreThoseOfTheOptimalSplit) {
  // n = 4, k = 2: g = (n - k) / (n^2 + k n - 2 k) = 2 / 20, c = 2 (n - 1) / 20 = 6 / 20.
  const Shares shares(4, 2);
  EXPECT_EQ(shares.of(3, 20).count, 2U);
  EXPECT_EQ(shares.of(4, 20).count, 6U);
}

TEST(Shares, LeaveTheContributorsNothingOnceThereAreEnoughAggregators) {
  const Shares shares(3, 3);
  EXPECT_FALSE(shares.owns(0));
  EXPECT_EQ(shares.of(3, 9), (Range{0, 3}));
  EXPECT_FALSE(Shares(1, 2).owns(1)) << "one contributor has nothing to add up";
}

TEST(Layout, GivesOffsetsAndRunsThatWrap) {
  const std::vector<uint64_t> counts = {3, 0, 5, 2};
  const Layout uneven(counts, 99, 4);
  EXPECT_EQ(uneven.block(2), (Range{3, 5}));
  EXPECT_EQ(uneven.total(), 10U);
  EXPECT_EQ(uneven.largest(), 5U);
  EXPECT_EQ(uneven.count_of_run(2, 3), 10U) << "ranks 2, 3, 0";
  EXPECT_EQ(uneven.count_of_run(3, 0), 0U);
  const Layout even({}, 4, 3);
  EXPECT_EQ(even.block(2), (Range{8, 4}));
  EXPECT_EQ(even.count_of_run(2, 2), 8U);
}

TEST(Subtree, PartitionsThePositionsBelowTheRoot) {
  for (int32_t size = 1; size <= 130; ++size) {
    int32_t covered = 1;
    for (int32_t level = 0; level < log2_ceil(size); ++level) {
      const int32_t child = int32_t{1} << level;
      EXPECT_LT(child, size);
      EXPECT_EQ(subtree_level(child, size), level);
      covered += subtree_size(child, size);
    }
    EXPECT_EQ(covered, size);
    EXPECT_EQ(subtree_size(0, size), size);
  }
}

}  // namespace
}  // namespace corro::collective
