// Tables with rows on disk, against the same tables without: bit for bit, whatever fails.
#include "table/row_tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "table/local_table.h"
#include "table/log/fake_disk.h"

namespace corro::table {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBudget = 1U << 20U;
constexpr uint64_t kSegment = 1U << 20U;

TableSpec spec_of(OptimizerKind kind, DType dtype, uint32_t dim) {
  TableSpec spec{.name = "t", .dim = dim, .dtype = dtype, .seed = 3};
  spec.optimizer.kind = kind;
  spec.initial = {.kind = InitialKind::kUniform, .low = -1, .high = 1};
  return spec;
}

/// A table with tiers on a fake disk, and the same one in memory.
class Pair {
 public:
  explicit Pair(TableSpec spec) : memory(LocalTable::create(spec).value()) {
    spec.retention.most_bytes = kBudget;
    spec.retention.spill = "/nowhere";
    auto made = std::make_unique<FakeDisk>();
    disk = made.get();
    tiers = LocalTable::create(spec, std::move(made), kSegment).value();
  }

  /// Of both; true if both have taken it.
  bool push(const std::vector<uint64_t>& keys, uint64_t step) {
    std::vector<float> gradients(keys.size() * memory->spec().dim);
    for (float& g : gradients) g = static_cast<float>(random_() % 2001) / 1000 - 1;
    status = tiers->push(keys, gradients, step);
    if (!status.ok()) return false;
    return memory->push(keys, gradients, step).ok();
  }
  std::vector<uint64_t> draw(size_t count, uint64_t hot, uint64_t all) {
    std::unordered_set<uint64_t> drawn;
    while (drawn.size() < count) drawn.insert(random_() % (random_() % 2 == 0 ? hot : all));
    return {drawn.begin(), drawn.end()};
  }
  [[nodiscard]] bool alike(const std::vector<uint64_t>& keys) {
    const size_t count = keys.size() * memory->spec().dim;
    std::vector<float> one(count);
    std::vector<float> other(count);
    status = tiers->pull(keys, one);
    return status.ok() && memory->pull(keys, other).ok() && one == other;
  }
  [[nodiscard]] bool alike_below(uint64_t end) {
    std::vector<uint64_t> keys(end);
    for (uint64_t i = 0; i < end; ++i) keys[i] = i;
    return alike(keys);
  }

  std::unique_ptr<LocalTable> memory;
  std::unique_ptr<LocalTable> tiers;
  FakeDisk* disk = nullptr;
  Status status;

 private:
  std::mt19937_64 random_{7};
};

const TableSpec kWide = spec_of(OptimizerKind::kMomentum, DType::kF32, 64);  // 512 bytes a row.

class AllTiers : public testing::TestWithParam<std::tuple<OptimizerKind, DType>> {};

TEST_P(AllTiers, HaveTheBitsOfATableInMemory) {
  Pair pair(spec_of(std::get<0>(GetParam()), std::get<1>(GetParam()), 50));
  constexpr uint64_t kKeys = 20'000;
  for (uint64_t step = 1; step <= 60; ++step) {
    ASSERT_TRUE(pair.push(pair.draw(700, 500, kKeys), step)) << pair.status.message();
    ASSERT_LE(pair.tiers->stats().bytes, kBudget);
    ASSERT_TRUE(pair.alike(pair.draw(300, 2000, 2 * kKeys))) << step;
  }
  const TableStats stats = pair.tiers->stats();
  EXPECT_EQ(stats.rows, pair.memory->stats().rows);
  EXPECT_LT(stats.rows_in_memory, stats.rows);
  EXPECT_GT(stats.rows_written, 3000);
  EXPECT_GT(stats.rows_warmed, 1000);
  EXPECT_EQ(stats.evicted, 0);
  EXPECT_TRUE(pair.alike_below(kKeys));
}

INSTANTIATE_TEST_SUITE_P(
    All, AllTiers,
    testing::Combine(testing::Values(OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                     OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
                                     OptimizerKind::kAdam, OptimizerKind::kFtrl),
                     testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
    [](const auto& one) {
      return std::string(name_of(std::get<0>(one.param))) + "_" +
             std::string(name_of(std::get<1>(one.param)));
    });

TEST(RowTiers, AdmitAndForgetAsATableInMemory) {
  for (const uint32_t idle : {0U, 9U}) {
    TableSpec spec = kWide;
    spec.retention = {.least_pushes = 2, .idle_steps = idle};
    Pair pair(spec);
    for (uint64_t step = 1; step <= 80; ++step) {
      ASSERT_TRUE(pair.push(pair.draw(1000, 400, 30'000), step)) << pair.status.message();
      ASSERT_TRUE(pair.alike(pair.draw(300, 400, 30'000))) << step;
    }
    EXPECT_TRUE(pair.alike_below(30'000));
    const TableStats stats = pair.tiers->stats();
    EXPECT_EQ(stats.rows, pair.memory->stats().rows);
    EXPECT_EQ(stats.evicted, pair.memory->stats().evicted);
    EXPECT_GT(stats.rows, stats.rows_in_memory + 1000);
    EXPECT_LE(stats.disk_bytes, 3 * stats.rows * 512 + 6 * kSegment);
  }
}

TEST(RowTiers, ARowOnDiskIsOneReadAndAKeyWithoutARowNone) {
  Pair pair(kWide);
  for (uint64_t step = 1; step <= 20; ++step) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 1000; ++i) keys.push_back(step * 1000 + i);
    ASSERT_TRUE(pair.push(keys, step));
  }
  uint64_t reads = pair.tiers->stats().disk_reads;
  ASSERT_TRUE(pair.alike({1, 2, 3, 500'000}));
  EXPECT_EQ(pair.tiers->stats().disk_reads, reads);
  ASSERT_TRUE(pair.alike({1000}));  // Pushed first, and not since.
  EXPECT_EQ(pair.tiers->stats().disk_reads, ++reads);
  ASSERT_TRUE(pair.alike({1000, 1000}));
  EXPECT_EQ(pair.tiers->stats().disk_reads, reads);
  ASSERT_TRUE(pair.push({2000}, 21));
  EXPECT_EQ(pair.tiers->stats().disk_reads, ++reads);
  EXPECT_EQ(pair.disk->read_count, reads);
}

TEST(RowTiers, ARowThatWasOnlyReadIsNotWrittenAgain) {
  Pair pair(kWide);
  for (uint64_t step = 1; step <= 10; ++step)
    ASSERT_TRUE(pair.push(pair.draw(2000, 8000, 8000), step));
  ASSERT_TRUE(pair.alike_below(8000));  // Writes what was dirty, and has all on disk.
  const uint64_t written = pair.tiers->stats().rows_written;
  const uint64_t warmed = pair.tiers->stats().rows_warmed;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pair.alike_below(8000));
  EXPECT_EQ(pair.tiers->stats().rows_written, written);
  EXPECT_GT(pair.tiers->stats().rows_warmed, warmed + 8000);
}

TEST(RowTiers, RowsThatAreUsedStayInMemory) {
  Pair pair(kWide);
  std::vector<uint64_t> hot(300);
  for (uint64_t i = 0; i < hot.size(); ++i) hot[i] = i;
  for (uint64_t step = 1; step <= 100; ++step) {
    std::vector<uint64_t> keys = hot;
    for (uint64_t i = 0; i < 300; ++i) keys.push_back(1000 + step * 300 + i);
    ASSERT_TRUE(pair.push(keys, step));
  }
  const uint64_t reads = pair.tiers->stats().disk_reads;
  ASSERT_TRUE(pair.alike(hot));
  EXPECT_LE(pair.tiers->stats().disk_reads, reads + 3);
}

TEST(RowTiers, APushOfMoreRowsThanThereIsMemoryForChangesEachOnce) {
  Pair pair(kWide);
  for (uint64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(pair.push(pair.draw(15'000, 20'000, 20'000), step)) << pair.status.message();
    ASSERT_LE(pair.tiers->stats().bytes, kBudget);
  }
  EXPECT_TRUE(pair.alike_below(20'000));
}

TEST(RowTiers, TheLargestRowsHaveTheirBits) {
  Pair pair(spec_of(OptimizerKind::kAdam, DType::kF32, kMaxDim));
  for (uint64_t step = 1; step <= 6; ++step)
    ASSERT_TRUE(pair.push(pair.draw(30, 60, 60), step)) << pair.status.message();
  EXPECT_TRUE(pair.alike_below(60));
  EXPECT_LE(pair.tiers->stats().bytes, kBudget);
}

TEST(RowTiers, RowsAreCopiedFromAndToTheDisk) {
  Pair from(kWide);
  Pair into(kWide);
  uint64_t step = 1;
  for (; step <= 20; ++step) ASSERT_TRUE(from.push(from.draw(1000, 500, 9000), step));
  const auto even = [](uint64_t key) { return key % 2 == 0; };
  const auto keys = from.tiers->keys_with_rows(even);
  EXPECT_EQ(keys, from.memory->keys_with_rows(even));
  std::vector<std::byte> packed(keys.size() * from.tiers->packed_bytes());
  std::vector<std::byte> expected(packed.size());
  ASSERT_TRUE(from.tiers->pack(keys, packed).ok());
  ASSERT_TRUE(from.memory->pack(keys, expected).ok());
  EXPECT_EQ(packed, expected);
  for (int twice = 0; twice < 2; ++twice) {  // Over rows that are there, too.
    ASSERT_TRUE(into.tiers->unpack(keys, packed, step).ok());
    ASSERT_TRUE(into.memory->unpack(keys, packed, step).ok());
    EXPECT_TRUE(into.alike_below(9000));
    EXPECT_LE(into.tiers->stats().bytes, kBudget);
  }
  from.tiers->forget(even);
  from.memory->forget(even);
  EXPECT_TRUE(from.alike_below(9000));
  EXPECT_EQ(from.tiers->stats().rows, from.memory->stats().rows);
  for (; step <= 40; ++step) ASSERT_TRUE(from.push(from.draw(1000, 500, 9000), step));
  EXPECT_TRUE(from.alike_below(9000));
}

// -- faults ---------------------------------------------------------------------------------------

/// Rows of 20 pushes, most of them on disk.
void fill(Pair& pair, uint64_t& step) {
  for (; step <= 20; ++step) ASSERT_TRUE(pair.push(pair.draw(1000, 500, 9000), step));
}

TEST(RowTiers, ARefusedPushChangesNothingAndIsTakenOnceTheDiskIsGoodAgain) {
  Pair pair(kWide);
  uint64_t step = 1;
  fill(pair, step);
  const auto keys = pair.draw(1000, 500, 9000);
  pair.disk->fails_reads = true;
  EXPECT_FALSE(pair.push(keys, step));
  EXPECT_EQ(pair.status.code(), Code::kDataLoss);
  EXPECT_THAT(pair.status.message(), HasSubstr("table t: fake: Input/output error"));
  EXPECT_FALSE(pair.alike(keys));
  pair.disk->fails_reads = false;
  EXPECT_TRUE(pair.alike_below(9000));
  EXPECT_TRUE(pair.push(keys, step));
  EXPECT_TRUE(pair.alike_below(9000));
}

TEST(RowTiers, AFullDiskRefusesPushesThatNeedRoomAndPullsGoOn) {
  Pair pair(kWide);
  pair.disk->most_bytes = 6 * kSegment;
  uint64_t step = 1;
  uint64_t next = 0;
  std::vector<uint64_t> keys(500);
  do {
    for (uint64_t& key : keys) key = next++;
  } while (pair.push(keys, step++));
  EXPECT_EQ(pair.status.code(), Code::kResourceExhausted);
  EXPECT_THAT(pair.status.message(), HasSubstr("table t: no room for "));
  EXPECT_THAT(pair.status.message(), HasSubstr("the disk is full"));
  EXPECT_GT(next, 5000);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pair.alike_below(next));
  // Room comes back with rows that go.
  const auto gone = [](uint64_t key) { return key % 3 != 0; };
  pair.tiers->forget(gone);
  pair.memory->forget(gone);
  for (int i = 0; i < 5; ++i) {
    for (uint64_t& key : keys) key = next++ * 3;
    ASSERT_TRUE(pair.push(keys, step++)) << i << " " << pair.status.message();
  }
  EXPECT_TRUE(pair.alike_below(3 * next));
}

TEST(RowTiers, WritesThatFailLoseNoRow) {
  Pair pair(kWide);
  uint64_t step = 1;
  fill(pair, step);
  pair.disk->fails_writes = true;
  while (pair.push(pair.draw(1000, 500, 9000), step)) ++step;
  EXPECT_EQ(pair.status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(pair.alike_below(9000));
  pair.disk->fails_writes = false;
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(pair.push(pair.draw(1000, 500, 9000), step++));
  EXPECT_TRUE(pair.alike_below(9000));
  EXPECT_LE(pair.tiers->stats().bytes, kBudget);
}

TEST(RowTiers, AFlippedBitIsToldAndOtherRowsAreRead) {
  Pair pair(kWide);
  uint64_t step = 1;
  fill(pair, step);
  pair.disk->bytes[pair.disk->bytes.size() - 100] ^= std::byte{1};
  EXPECT_FALSE(pair.alike_below(9000));
  EXPECT_EQ(pair.status.code(), Code::kDataLoss);
  EXPECT_THAT(pair.status.message(), HasSubstr("table t: rows on disk: the block at byte "));
  size_t bad = 0;
  for (uint64_t key = 0; key < 9000; ++key) bad += pair.alike({key}) ? 0 : 1;
  EXPECT_GT(bad, 0);
  EXPECT_LE(bad, 7);
}

TEST(RowTiers, AnIndexBeyondTheBudgetIsRefusedAndSaysWhatToDo) {
  Pair pair(spec_of(OptimizerKind::kSgd, DType::kF32, 4));
  uint64_t next = 0;
  std::vector<uint64_t> keys(2000);
  uint64_t step = 1;
  do {
    for (uint64_t& key : keys) key = next++;
  } while (pair.push(keys, step++));
  EXPECT_EQ(pair.status.code(), Code::kResourceExhausted);
  EXPECT_THAT(pair.status.message(), HasSubstr("raise budget, add servers, or let rows go"));
  EXPECT_GT(next, 35'000);
  EXPECT_TRUE(pair.alike_below(next));
  for (uint64_t& key : keys) key -= 10'000;
  EXPECT_TRUE(pair.push(keys, step)) << "rows that are there change";
  EXPECT_TRUE(pair.alike_below(next));
}

TEST(RowTiers, AFolderThatCannotBeUsedIsNamed) {
  TableSpec spec = kWide;
  spec.retention = {.most_bytes = kBudget, .spill = "/proc/nowhere"};
  const Status status = LocalTable::create(spec).status();
  EXPECT_THAT(status.message(), HasSubstr("table t: rows on disk: /proc/nowhere cannot be made"));
}

}  // namespace
}  // namespace corro::table
