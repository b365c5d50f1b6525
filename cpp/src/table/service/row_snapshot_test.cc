#include "table/service/row_snapshot.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "table/service/messages.h"

namespace corro::table {
namespace {

TableSpec spec_of_snapshot() {
  return {.name = "t", .dim = 3, .optimizer = {.kind = OptimizerKind::kAdam}};
}

using Packed = std::map<uint64_t, Bytes>;

void push_drawn(LocalTable& table, std::minstd_rand& random, uint64_t step,
                RowSnapshot* snapshot = nullptr) {
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 400; ++key)
    if (random() % 8 == 0) keys.push_back(key);
  std::vector<float> gradients(keys.size() * 3);
  for (float& gradient : gradients) gradient = static_cast<float>(random() % 100) - 50;
  if (snapshot != nullptr) {
    EXPECT_TRUE(snapshot->keep(keys).ok());
  }
  EXPECT_TRUE(table.push(keys, gradients, step).ok());
}

Packed all_rows(const LocalTable& table) {
  Packed rows;
  for (const uint64_t key : table.keys_with_rows([](uint64_t) { return true; })) {
    rows[key].resize(table.packed_bytes());
    EXPECT_TRUE(table.pack(std::span(&key, 1), rows[key]).ok());
  }
  return rows;
}

void add_page(Packed& rows, const Bytes& page, uint64_t step) {
  const PackedRows packed = decode_packed(page).value();
  EXPECT_EQ(packed.steps, step);
  for (size_t i = 0; i < packed.keys.size(); ++i) {
    const BytesView row = packed.rows.subspan(i * packed.row_bytes, packed.row_bytes);
    EXPECT_TRUE(rows.emplace(packed.keys[i], Bytes(row.begin(), row.end())).second);
  }
}

TEST(RowSnapshot, GivesTheRowsOfItsStepWhateverIsPushedMeanwhile) {
  for (uint32_t seed = 1; seed < 60; ++seed) {
    std::minstd_rand random(seed);
    const auto table = LocalTable::create(spec_of_snapshot()).value();
    uint64_t step = 0;
    for (; step < 1 + seed % 4; ++step) push_drawn(*table, random, step + 1);
    const Packed expected = all_rows(*table);
    RowSnapshot snapshot(*table, ShardSet().set(), step);
    Packed got;
    const uint64_t first = step;
    for (auto page = snapshot.next(1).value(); page;
         page = snapshot.next(1 + random() % 2000).value()) {
      add_page(got, *page, first);
      if (random() % 2 == 0) push_drawn(*table, random, ++step, &snapshot);
    }
    EXPECT_EQ(got, expected) << "seed " << seed;
    EXPECT_EQ(snapshot.rows(), expected.size());
    EXPECT_FALSE(snapshot.next(1).value());
  }
}

TEST(RowSnapshot, GivesRowsThatABudgetCountsAsUsed) {
  TableSpec spec = spec_of_snapshot();
  spec.retention.most_bytes = 1U << 30U;
  std::minstd_rand random(3);
  const auto table = LocalTable::create(spec).value();
  const auto other = LocalTable::create(spec_of_snapshot()).value();
  for (uint64_t step = 1; step < 5; ++step) {
    std::minstd_rand same = random;
    push_drawn(*table, random, step);
    push_drawn(*other, same, step);
  }
  EXPECT_EQ(all_rows(*table), all_rows(*other));
}

TEST(RowSnapshot, GivesRowsThatLieOnDisk) {
  TableSpec spec = spec_of_snapshot();
  const auto warm = LocalTable::create(spec).value();
  spec.retention = {.most_bytes = 1U << 20U, .spill = testing::TempDir()};
  const auto spilled = LocalTable::create(spec).value();
  std::vector<uint64_t> keys(30'000);
  for (uint64_t key = 0; key < keys.size(); ++key) keys[key] = key;
  std::vector<float> gradients(keys.size() * 3, 1);
  for (LocalTable* const table : {warm.get(), spilled.get()}) {
    const Status status = table->push(keys, gradients, 1);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  ASSERT_GT(spilled->stats().disk_bytes, 0U);
  const Packed expected = all_rows(*warm);
  RowSnapshot snapshot(*spilled, ShardSet().set(), 1);
  ASSERT_TRUE(snapshot.keep(std::span(keys).first(100)).ok());
  ASSERT_TRUE(spilled->push(std::span(keys).first(100), std::span(gradients).first(300), 2).ok());
  Packed got;
  while (const auto page = snapshot.next(100'000).value()) add_page(got, *page, 1);
  EXPECT_EQ(got, expected);
}

TEST(RowSnapshot, GivesTheRowsOfItsShardsAlone) {
  std::minstd_rand random(7);
  const auto table = LocalTable::create(spec_of_snapshot()).value();
  push_drawn(*table, random, 1);
  std::array<ShardSet, 2> halves;
  for (size_t shard = 0; shard < kShards; ++shard) halves[shard % 2].set(shard);
  Packed got;
  for (const ShardSet& half : halves) {
    RowSnapshot snapshot(*table, half, 1);
    while (const auto page = snapshot.next(200).value()) {
      add_page(got, *page, 1);
      const PackedRows packed = decode_packed(*page).value();
      for (const uint64_t key : packed.keys) EXPECT_TRUE(half.test(shard_of(key)));
    }
  }
  EXPECT_EQ(got, all_rows(*table));
}

}  // namespace
}  // namespace corro::table
