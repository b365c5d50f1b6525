#include "table/service/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace corro::table {
namespace {

TEST(Placement, EachShardHasSoManyOwnersAndServersAboutEquallyMany) {
  for (const size_t servers : {1UL, 2UL, 3UL, 7UL}) {
    for (const size_t copies : {1UL, 2UL, 4UL}) {
      const Placement placement(servers, copies);
      const size_t owners = std::min(servers, copies);
      std::vector<size_t> shards(servers);
      for (size_t shard = 0; shard < kShards; ++shard) {
        const auto mine = placement.owners_of_shard(shard);
        EXPECT_EQ(std::set<uint16_t>(mine.begin(), mine.end()).size(), owners);
        for (const uint16_t server : mine) ++shards.at(server);
      }
      const size_t fair = kShards * owners / servers;
      for (const size_t count : shards) {
        EXPECT_GT(count, fair * 85 / 100);
        EXPECT_LT(count, fair * 115 / 100 + 1);
      }
    }
  }
}

TEST(Placement, KeysSpreadOverShards) {
  const Placement placement(4, 1);
  std::vector<int> keys(4);
  for (uint64_t key = 0; key < 4000; ++key) ++keys[placement.owners(key)[0]];
  for (const int count : keys) EXPECT_NEAR(count, 1000, 150);
}

TEST(Placement, AServerMoreTakesShardsFromAllAndMovesNoOthers) {
  const Placement few(4, 1);
  const Placement more(5, 1);
  size_t moved = 0;
  for (size_t shard = 0; shard < kShards; ++shard) {
    const uint16_t before = few.owners_of_shard(shard)[0];
    const uint16_t after = more.owners_of_shard(shard)[0];
    if (before == after) continue;
    EXPECT_EQ(after, 4);
    ++moved;
  }
  EXPECT_NEAR(static_cast<double>(moved), kShards / 5.0, kShards / 20.0);
}

TEST(Placement, AShardIsLostWithItsLastOwner) {
  const Placement placement(3, 2);
  EXPECT_FALSE(placement.lost_shard({false, false, false}));
  EXPECT_FALSE(placement.lost_shard({true, false, false}));
  const auto shard = placement.lost_shard({true, false, true});
  ASSERT_TRUE(shard);
  for (const uint16_t owner : placement.owners_of_shard(*shard)) EXPECT_NE(owner, 1);
  EXPECT_TRUE(Placement(3, 1).lost_shard({true, false, false}));
}

}  // namespace
}  // namespace corro::table
