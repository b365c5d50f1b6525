#include "table/service/holders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace corro::table {
namespace {

TEST(Holders, EachShardHasSoManyOwnersAndServersAboutEquallyMany) {
  for (const size_t servers : {1UL, 2UL, 3UL, 7UL}) {
    for (const size_t copies : {1UL, 2UL, 4UL}) {
      const Holders holders(servers, copies);
      const size_t owners = std::min(servers, copies);
      std::vector<size_t> shards(servers);
      for (size_t shard = 0; shard < kShards; ++shard) {
        const auto mine = holders.of_shard(shard);
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

TEST(Holders, KeysSpreadOverShards) {
  const Holders holders(4, 1);
  std::vector<int> keys(4);
  for (uint64_t key = 0; key < 4000; ++key) ++keys[holders.of(key)[0]];
  for (const int count : keys) EXPECT_NEAR(count, 1000, 150);
}

TEST(Holders, AServerMoreTakesShardsFromAllAndMovesNoOthers) {
  const Holders few(4, 1);
  const Holders more(5, 1);
  size_t moved = 0;
  for (size_t shard = 0; shard < kShards; ++shard) {
    const uint16_t before = few.of_shard(shard)[0];
    const uint16_t after = more.of_shard(shard)[0];
    if (before == after) continue;
    EXPECT_EQ(after, 4);
    ++moved;
  }
  EXPECT_NEAR(static_cast<double>(moved), kShards / 5.0, kShards / 20.0);
}

TEST(Holders, AShardIsLostWithItsLastOwner) {
  const Holders holders(3, 2);
  EXPECT_FALSE(holders.lost_shard({false, false, false}));
  EXPECT_FALSE(holders.lost_shard({true, false, false}));
  const auto shard = holders.lost_shard({true, false, true});
  ASSERT_TRUE(shard);
  for (const uint16_t owner : holders.of_shard(*shard)) EXPECT_NE(owner, 1);
  EXPECT_TRUE(Holders(3, 1).lost_shard({true, false, false}));
}

/// Those are lost, and none leaves.
Holders::Absent all_but(const std::vector<bool>& lost) {
  return {lost, std::vector<bool>(lost.size())};
}

/// Moves until nothing is to be moved; returns how many moves that takes.
size_t settle(Holders& holders, const Holders::Absent& absent, size_t most) {
  const std::vector<bool>& lost = absent.lost;
  size_t moves = 0;
  for (auto move = holders.next_move(absent, most); move; move = holders.next_move(absent, most)) {
    EXPECT_LE(move->shards.count(), most);
    EXPECT_FALSE(lost[move->source] || lost[move->target]);
    for (size_t shard = 0; shard < kShards; ++shard) {
      if (!move->shards.test(shard)) continue;
      const auto now = holders.of_shard(shard);
      EXPECT_TRUE(std::ranges::find(now, move->source) != now.end());
      EXPECT_TRUE(std::ranges::find(now, move->target) == now.end());
    }
    holders = holders.after(*move, absent);
    EXPECT_EQ(holders.version(), ++moves);
  }
  return moves;
}

TEST(Holders, WhatALostServerHeldIsCopiedToTheNextOwners) {
  Holders holders(3, 2);
  const std::vector<bool> lost = {false, true, false};
  EXPECT_EQ(holders.least_copies({false, false, false}), 2U);
  EXPECT_EQ(holders.least_copies(lost), 1U);
  EXPECT_GT(settle(holders, all_but(lost), 500), 4U);
  EXPECT_EQ(holders.least_copies(lost), 2U);
  EXPECT_FALSE(holders.servers().contains(1));
}

TEST(Holders, AServerThatComesTakesOverWhatItOwnsAndOthersForgetIt) {
  Holders holders(3, 2);
  const std::vector<bool> lost = {false, true, false, false};
  settle(holders, all_but(lost), kShards);
  const Holders fresh(4, 2);
  size_t shards = 0;
  for (size_t shard = 0; shard < kShards; ++shard) {
    EXPECT_EQ(holders.of_shard(shard).size(), 2U);
    const auto mine = fresh.of_shard(shard);
    const bool owned = std::ranges::find(mine, 3) != mine.end();
    const auto now = holders.of_shard(shard);
    EXPECT_TRUE(!owned || std::ranges::find(now, 3) != now.end());
    shards += static_cast<size_t>(std::ranges::count(now, 3));
  }
  EXPECT_NEAR(static_cast<double>(shards), kShards * 2 / 3.0, 200);
}

TEST(Holders, ShardsWithTooFewHoldersComeFirst) {
  Holders holders(3, 2);
  const std::vector<bool> lost = {false, true, false, false};
  while (holders.least_copies(lost) < 2) {
    const auto move = holders.next_move(all_but(lost), 100);
    ASSERT_TRUE(move);
    for (size_t shard = 0; shard < kShards; ++shard) {
      if (!move->shards.test(shard)) continue;
      const auto now = holders.of_shard(shard);
      EXPECT_EQ(std::ranges::count_if(now, [&](uint16_t one) { return !lost[one]; }), 1);
    }
    holders = holders.after(*move, all_but(lost));
  }
}

TEST(Holders, NothingIsMovedWhereNobodyHasTheRows) {
  Holders holders(2, 1);
  EXPECT_FALSE(holders.next_move(all_but({false, false}), 1));
  const Holders::Absent absent = all_but({true, false, false});
  for (auto move = holders.next_move(absent, kShards); move;
       move = holders.next_move(absent, kShards))
    holders = holders.after(*move, absent);
  EXPECT_TRUE(holders.lost_shard({true, false, false}));
}

TEST(Holders, AServerThatLeavesGivesItsShardsAwayAndIsNoHolderThen) {
  Holders holders(3, 2);
  const Holders::Absent absent{{false, false, false}, {false, true, false}};
  EXPECT_GT(settle(holders, absent, 500), 2U);
  EXPECT_TRUE(holders.servers().contains(1)) << "it takes steps until all ranks know";
  const auto next = holders.without_leaving(absent);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->version(), holders.version() + 1);
  EXPECT_FALSE(next->servers().contains(1));
  EXPECT_EQ(next->least_copies(absent.lost), 2U);
  EXPECT_FALSE(next->without_leaving(absent));
}

TEST(Holders, TheLastServerStays) {
  const Holders holders(2, 2);
  const Holders::Absent absent{{true, false}, {false, true}};
  EXPECT_FALSE(holders.next_move(absent, kShards));
  EXPECT_FALSE(holders.without_leaving(absent));
}

}  // namespace
}  // namespace corro::table
