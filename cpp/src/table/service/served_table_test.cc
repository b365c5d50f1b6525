#include "table/service/served_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace corro::table {
namespace {

using Taken = ServedTable::Taken;

Open open_of(uint32_t ranks) {
  return {.spec = {.name = "t", .dim = 1, .optimizer = {.lr = 1}}, .rank = 0, .ranks = ranks};
}

/// One part of a push.
struct Part {
  PushHead head;
  std::vector<uint64_t> keys;
  std::vector<float> gradients;
  [[nodiscard]] Push push() const { return {head, keys, gradients}; }
};

Part whole(uint64_t step, std::vector<uint64_t> keys, std::vector<float> gradients, float lr = 1) {
  const PushHead head{.step = step, .first = 0, .rows = keys.size(), .patience_ms = 0, .lr = lr};
  return {head, std::move(keys), std::move(gradients)};
}

float row(const ServedTable& table, uint64_t key) {
  float value = 0;
  EXPECT_TRUE(table.pull(std::span(&key, 1), std::span(&value, 1)).ok());
  return value;
}

std::unique_ptr<ServedTable> table_of(uint32_t ranks) {
  return ServedTable::create(open_of(ranks)).value();
}

TEST(ServedTable, AStepIsTakenOnceAllRanksHavePushed) {
  const auto table = table_of(2);
  EXPECT_EQ(table->take(1, whole(1, {3, 4}, {1, 2}).push()).value(), Taken::kWhole);
  EXPECT_FALSE(table->ready());
  EXPECT_EQ(table->describe_missing(), "rank 0");
  EXPECT_EQ(row(*table, 3), 0);
  EXPECT_EQ(table->take(0, whole(1, {4}, {10}).push()).value(), Taken::kWhole);
  ASSERT_TRUE(table->ready());
  ASSERT_TRUE(table->apply().ok());
  EXPECT_EQ(row(*table, 3), -1);
  EXPECT_EQ(row(*table, 4), -12);
  EXPECT_EQ(table->steps(), 1U);
  EXPECT_EQ(table->describe_missing(), "ranks 0, 1");
}

TEST(ServedTable, RanksAreAddedInTheirOrderWhateverComesFirst) {
  const std::vector<float> gradients = {1.0F, 1e8F, -1e8F};
  std::vector<uint32_t> order = {0, 1, 2};
  do {
    const auto table = table_of(3);
    for (const uint32_t rank : order)
      ASSERT_TRUE(table->take(rank, whole(1, {9}, {gradients[rank]}).push()).ok());
    ASSERT_TRUE(table->apply().ok());
    EXPECT_EQ(row(*table, 9), -((1.0F + 1e8F) - 1e8F));
  } while (std::ranges::next_permutation(order).found);
}

TEST(ServedTable, WhatComesAgainChangesNothing) {
  const auto table = table_of(1);
  const Part push = whole(1, {1}, {2});
  EXPECT_EQ(table->take(0, push.push()).value(), Taken::kWhole);
  EXPECT_EQ(table->take(0, push.push()).value(), Taken::kWhole);
  ASSERT_TRUE(table->apply().ok());
  EXPECT_EQ(table->take(0, push.push()).value(), Taken::kOld);
  EXPECT_FALSE(table->ready());
  EXPECT_EQ(row(*table, 1), -2);
}

TEST(ServedTable, APushComesInPartsAndPartsComeAgain) {
  const auto table = table_of(1);
  const auto part = [](uint64_t first, std::vector<uint64_t> keys, std::vector<float> gradients) {
    return Part{{.step = 1, .first = first, .rows = 3, .patience_ms = 0, .lr = 1},
                std::move(keys),
                std::move(gradients)};
  };
  const Part begin = part(0, {1, 2}, {1, 2});
  const Part end = part(2, {3}, {3});
  EXPECT_FALSE(table->take(0, end.push()).ok());
  EXPECT_EQ(table->take(0, begin.push()).value(), Taken::kPart);
  EXPECT_EQ(table->take(0, begin.push()).value(), Taken::kPart);
  EXPECT_FALSE(table->take(0, part(1, {3}, {3}).push()).ok() && table->ready());
  EXPECT_FALSE(table->take(0, part(2, {2}, {3}).push()).ok());
  EXPECT_EQ(table->take(0, end.push()).value(), Taken::kWhole);
  ASSERT_TRUE(table->apply().ok());
  for (const uint64_t key : {1UL, 2UL, 3UL}) EXPECT_EQ(row(*table, key), -static_cast<float>(key));
}

TEST(ServedTable, AStepThatIsNotTheNextOneIsRefused) {
  const auto table = table_of(1);
  const auto taken = table->take(0, whole(2, {1}, {1}).push());
  EXPECT_EQ(taken.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(taken.status().message().find("the next one is 1"), std::string::npos);
}

TEST(ServedTable, RanksWithOtherRatesAreNamedAndNothingChanges) {
  const auto table = table_of(2);
  ASSERT_TRUE(table->take(0, whole(1, {1}, {1}, 1).push()).ok());
  ASSERT_TRUE(table->take(1, whole(1, {1}, {1}, 2).push()).ok());
  const Status status = table->apply();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("rank 1 with 2"), std::string::npos) << status.message();
  EXPECT_EQ(row(*table, 1), 0);
  EXPECT_FALSE(table->ready());
}

TEST(ServedTable, AnotherSpecOrNumberOfRanksIsRefused) {
  const auto table = table_of(2);
  EXPECT_TRUE(table->open(open_of(2)).ok());
  EXPECT_EQ(table->open(open_of(3)).code(), Code::kFailedPrecondition);
  Open other = open_of(2);
  other.spec.dim = 2;
  EXPECT_EQ(table->open(other).code(), Code::kInvalidArgument);
}

/// Any number of ranks, in any order, with parts and repeats of any size, against a plain sum.
TEST(ServedTable, AnyOrderOfPartsGivesTheSameRows) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const uint32_t ranks = 1 + random() % 4;
    const auto table = table_of(ranks);
    std::vector<std::vector<uint64_t>> keys(ranks);
    for (auto& mine : keys)
      for (uint64_t key = 0; key < 10; ++key)
        if (random() % 2 == 0) mine.push_back(key);
    std::vector<size_t> first(ranks);
    std::vector<bool> done(ranks);
    while (!table->ready()) {
      const auto rank = static_cast<uint32_t>(random() % ranks);
      const size_t from = random() % 3 == 0 ? 0 : first[rank];
      const size_t count = std::min<size_t>(keys[rank].size() - from, random() % 4);
      if (count == 0 && !keys[rank].empty()) continue;
      const Part part{{.step = 1, .first = from, .rows = keys[rank].size(), .lr = 1},
                      {keys[rank].begin() + static_cast<ptrdiff_t>(from),
                       keys[rank].begin() + static_cast<ptrdiff_t>(from + count)},
                      std::vector<float>(count, 1)};
      const auto taken = table->take(rank, part.push());
      if (from == first[rank]) {
        ASSERT_TRUE(taken.ok()) << taken.status().message();
        first[rank] += count;
      }
    }
    ASSERT_TRUE(table->apply().ok());
    for (uint64_t key = 0; key < 10; ++key) {
      const auto holders = std::ranges::count_if(
          keys, [key](const auto& mine) { return std::ranges::find(mine, key) != mine.end(); });
      EXPECT_EQ(row(*table, key), -static_cast<float>(holders));
    }
  }
}

/// A whole push that was picked by a version of the holders.
Part of_version(uint64_t version, uint64_t step, std::vector<uint64_t> keys) {
  const std::vector<float> gradients(keys.size(), 1);
  Part part = whole(step, std::move(keys), gradients);
  part.head.version = version;
  return part;
}

TEST(ServedTable, APushOfALaterVersionTakesThePlaceOfAnEarlierOne) {
  const auto table = table_of(2);
  EXPECT_EQ(table->take(1, of_version(0, 1, {3}).push()).value(), Taken::kWhole);
  EXPECT_EQ(table->take(0, of_version(1, 1, {3, 4}).push()).value(), Taken::kWhole);
  EXPECT_FALSE(table->ready());
  EXPECT_EQ(table->describe_missing(), "rank 1");
  EXPECT_EQ(table->take(1, of_version(1, 1, {4, 5}).push()).value(), Taken::kWhole);
  EXPECT_EQ(table->take(1, of_version(0, 1, {3}).push()).value(), Taken::kStale);
  ASSERT_TRUE(table->ready());
  ASSERT_TRUE(table->apply().ok());
  EXPECT_EQ(row(*table, 3), -1);
  EXPECT_EQ(row(*table, 4), -2);
  EXPECT_EQ(row(*table, 5), -1);
}

TEST(ServedTable, RowsAreCopiedInPartsAndTheCopyGoesOnAsTheTable) {
  const auto table = table_of(1);
  for (uint64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(table->take(0, whole(step, {1, 2, 3, UINT64_MAX}, {1, 2, 3, 4}).push()).ok());
    ASSERT_TRUE(table->apply().ok());
  }
  const auto copy = table_of(1);
  Export wanted{.shards = {}, .from = 0, .most_bytes = 1};
  wanted.shards.set(shard_of(2)).set(shard_of(3)).set(shard_of(UINT64_MAX));
  int parts = 0;
  for (bool more = true; more; ++parts) {
    const Bytes packed = table->pack(wanted).value();
    const PackedRows rows = decode_packed(packed).value();
    ASSERT_TRUE(copy->unpack(rows).ok());
    more = rows.more;
    wanted.from = rows.keys.back() + 1;
  }
  EXPECT_EQ(parts, 3);
  EXPECT_EQ(copy->steps(), 3U);
  EXPECT_EQ(row(*copy, 1), 0);
  for (const uint64_t key : {uint64_t{2}, uint64_t{3}, UINT64_MAX})
    EXPECT_EQ(row(*copy, key), row(*table, key));
  ASSERT_TRUE(copy->take(0, whole(4, {2}, {1}).push()).ok());
  ASSERT_TRUE(copy->apply().ok());
  const Bytes late = table->pack(wanted).value();
  EXPECT_EQ(copy->unpack(decode_packed(late).value()).code(), Code::kFailedPrecondition);
}

/// A rank that has not heard of it yet pulls them here.
TEST(ServedTable, RowsOfAShardThatWasHandedOverStayUntilAllRanksKnow) {
  const auto table = table_of(2);
  for (const uint32_t rank : {0U, 1U})
    ASSERT_TRUE(table->take(rank, of_version(0, 1, {1, 2}).push()).ok());
  ASSERT_TRUE(table->apply().ok());
  ShardSet held;
  held.set(shard_of(1));
  ASSERT_NE(shard_of(1), shard_of(2));
  table->hold(1, held);
  ASSERT_TRUE(table->take(0, of_version(1, 2, {1}).push()).ok());
  EXPECT_EQ(row(*table, 2), -2);
  ASSERT_TRUE(table->take(1, of_version(1, 2, {1}).push()).ok());
  ASSERT_TRUE(table->apply().ok());
  EXPECT_EQ(row(*table, 2), 0);
  EXPECT_EQ(row(*table, 1), -4);
}

std::unique_ptr<ServedTable> table_of(uint32_t ranks, Mode mode, uint32_t staleness) {
  Open open = open_of(ranks);
  open.spec.mode = mode;
  open.spec.staleness = staleness;
  return ServedTable::create(open).value();
}

TEST(ServedTable, RowsThatLaterStepsHaveChangedAreKnown) {
  const auto table = table_of(2);
  for (uint64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(table->take(0, whole(step, {step}, {1}).push()).ok());
    ASSERT_TRUE(table->take(1, whole(step, {10 * step}, {1}).push()).ok());
    ASSERT_TRUE(table->apply().ok());
  }
  const std::vector<uint64_t> keys = {1, 2, 5, 30};
  EXPECT_EQ(table->changed_since(1, keys), (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(table->changed_since(3, keys), std::vector<uint32_t>{});
}

/// Such a row changes without a push of its key.
TEST(ServedTable, RowsOfATableThatEvictsMayAllHaveChanged) {
  Open open = open_of(1);
  open.spec.retention.idle_steps = 1;
  const auto table = ServedTable::create(open).value();
  for (uint64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(table->take(0, whole(step, {step}, {1}).push()).ok());
    ASSERT_TRUE(table->apply().ok());
  }
  EXPECT_EQ(table->changed_since(1, std::vector<uint64_t>{1}), std::nullopt);
}

TEST(ServedTable, InBoundedModeLaterPushesWaitForTheirStep) {
  const auto table = table_of(2, Mode::kBounded, 1);
  EXPECT_EQ(table->take(0, whole(2, {1}, {20}).push()).value(), Taken::kWhole);
  EXPECT_EQ(table->take(0, whole(1, {1}, {1}).push()).value(), Taken::kWhole);
  EXPECT_EQ(table->take(0, whole(3, {1}, {1}).push()).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(table->take(1, whole(2, {1}, {30}).push()).value(), Taken::kWhole);
  EXPECT_FALSE(table->ready());
  EXPECT_EQ(table->take(1, whole(1, {1}, {2}).push()).value(), Taken::kWhole);
  ASSERT_TRUE(table->ready());
  ASSERT_TRUE(table->apply().ok());
  EXPECT_EQ(row(*table, 1), -3);
  ASSERT_TRUE(table->ready());
  ASSERT_TRUE(table->apply().ok());
  EXPECT_EQ(row(*table, 1), -53);
  EXPECT_FALSE(table->ready());
}

TEST(ServedTable, InAsyncModeAPushIsAStep) {
  const auto table = table_of(2, Mode::kAsync, 3);
  for (uint64_t step = 1; step <= 3; ++step) {
    EXPECT_EQ(table->take(1, whole(step, {1}, {1}).push()).value(), Taken::kWhole);
    ASSERT_TRUE(table->ready());
    ASSERT_TRUE(table->apply().ok());
    EXPECT_EQ(table->take(1, whole(step, {1}, {1}).push()).value(), Taken::kOld);
  }
  EXPECT_EQ(table->take(0, whole(1, {1}, {10}, 0.5F).push()).value(), Taken::kWhole);
  ASSERT_TRUE(table->apply().ok());
  EXPECT_EQ(row(*table, 1), -8);
  EXPECT_EQ(table->steps(), 4U);
  EXPECT_EQ(table->steps_of(0), 1U);
  EXPECT_EQ(table->steps_of(1), 3U);
  EXPECT_EQ(table->take(0, whole(3, {1}, {1}).push()).status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace corro::table
