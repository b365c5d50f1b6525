// Which rows a table makes and keeps, against a map that does the same.
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "table/local_table.h"
#include "table/naive_row.h"
#include "table/naive_table.h"

namespace corro::table {
namespace {

constexpr uint32_t kDim = 4;

TableSpec spec_with(const Retention& retention) {
  TableSpec spec{.name = "t", .dim = kDim, .seed = 9};
  spec.optimizer.kind = OptimizerKind::kMomentum;
  spec.initial = {.kind = InitialKind::kUniform, .low = -1, .high = 1};
  spec.retention = retention;
  return spec;
}

std::unique_ptr<LocalTable> table_with(const Retention& retention) {
  auto table = LocalTable::create(spec_with(retention));
  EXPECT_TRUE(table.ok()) << table.status().message();
  return std::move(*table);
}

std::vector<float> row_of(const LocalTable& table, uint64_t key) {
  std::vector<float> values(kDim);
  EXPECT_TRUE(table.pull({&key, 1}, values).ok());
  return values;
}

void push_all(LocalTable& table, const std::vector<uint64_t>& keys, uint64_t step) {
  const std::vector<float> gradients(keys.size() * kDim, 0.25F);
  ASSERT_TRUE(table.push(keys, gradients, step).ok());
}

bool has_row(const LocalTable& table, uint64_t key) {
  return row_of(table, key) != naive_initial(table.spec(), key).weights;
}

TEST(Admission, DropsGradientsOfKeysThatCameTooRarely) {
  const auto table = table_with({.least_pushes = 3});
  push_all(*table, {1, 2}, 1);
  push_all(*table, {1}, 2);
  EXPECT_FALSE(has_row(*table, 1));
  EXPECT_EQ(table->stats().rows, 0);
  push_all(*table, {1, 2}, 3);
  EXPECT_TRUE(has_row(*table, 1));
  EXPECT_FALSE(has_row(*table, 2));
  EXPECT_EQ(table->stats().admitted, 1);
  const auto at_once = table_with({});
  push_all(*at_once, {1}, 3);
  EXPECT_EQ(row_of(*table, 1), row_of(*at_once, 1));
}

TEST(Idle, ARowGoesThatNoStepHasTouched) {
  const auto table = table_with({.idle_steps = 3});
  push_all(*table, {1, 2}, 1);
  push_all(*table, {2}, 2);
  push_all(*table, {}, 3);
  EXPECT_TRUE(has_row(*table, 1));
  push_all(*table, {}, 4);
  EXPECT_FALSE(has_row(*table, 1));
  EXPECT_TRUE(has_row(*table, 2));
  push_all(*table, {1, 2}, 5);
  const auto fresh = table_with({});
  push_all(*fresh, {1}, 5);
  EXPECT_EQ(row_of(*table, 1), row_of(*fresh, 1));
  EXPECT_TRUE(has_row(*table, 2));
  EXPECT_EQ(table->stats().evicted, 1);
  EXPECT_EQ(table->stats().admitted, 3);
}

TEST(Idle, AGapInTheStepsAgesRows) {
  const auto table = table_with({.idle_steps = 10});
  push_all(*table, {1}, 1);
  push_all(*table, {1}, 11);
  EXPECT_EQ(table->stats().evicted, 0);
  push_all(*table, {1}, 22);
  EXPECT_EQ(table->stats().evicted, 1);
}

TEST(Idle, PullsKeepNoRow) {
  const auto table = table_with({.idle_steps = 2});
  push_all(*table, {1}, 1);
  (void)row_of(*table, 1);
  push_all(*table, {}, 2);
  (void)row_of(*table, 1);
  push_all(*table, {}, 3);
  EXPECT_FALSE(has_row(*table, 1));
}

TEST(Idle, MemoryOfIdleRowsComesBack) {
  const auto table = table_with({.idle_steps = 8});
  uint64_t bytes = 0;
  for (uint64_t step = 1; step <= 400; ++step) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 500; ++i) keys.push_back(step * 500 + i);
    push_all(*table, keys, step);
    ASSERT_LE(table->stats().rows, 500 * 8 * 5 / 2) << step;
    if (step == 100) bytes = table->stats().bytes;
  }
  EXPECT_LE(table->stats().bytes, bytes + bytes / 10);
  EXPECT_EQ(table->stats().evicted + table->stats().rows, table->stats().admitted);
}

TEST(Retention, DoesAsAMapDoes) {
  for (const Retention& retention :
       {Retention{.least_pushes = 2}, Retention{.idle_steps = 1}, Retention{.idle_steps = 7},
        Retention{.least_pushes = 3, .idle_steps = 20}}) {
    const auto table = table_with(retention);
    NaiveTable naive(table->spec());
    std::mt19937_64 random(3);
    for (uint64_t step = 1; step <= 200; ++step) {
      std::unordered_set<uint64_t> drawn;
      for (int i = 0; i < 50; ++i) {
        drawn.insert(random() % 3 == 0 ? random() % 20000 : random() % 100);
      }
      const std::vector<uint64_t> keys(drawn.begin(), drawn.end());
      std::vector<float> gradients;
      for (size_t i = 0; i < keys.size() * kDim; ++i) {
        gradients.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
      }
      ASSERT_TRUE(table->push(keys, gradients, step).ok());
      naive.push(keys, gradients, step);
      for (const uint64_t key : keys) ASSERT_EQ(row_of(*table, key), naive.pull(key)) << step;
    }
    for (uint64_t key = 0; key < 20000; ++key)
      ASSERT_EQ(row_of(*table, key), naive.pull(key)) << key;
    EXPECT_GE(table->stats().rows, naive.rows.size());
  }
}

/// Steps in which `hot` keys come each time, and `cold` ones once for ever.
std::vector<uint64_t> some_hot(uint64_t step, uint64_t hot, uint64_t cold) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < hot; ++i) keys.push_back(i);
  for (uint64_t i = 0; i < cold; ++i) keys.push_back(1'000'000 + step * cold + i);
  return keys;
}

TEST(MostBytes, IsNeverPassed) {
  for (const uint64_t most : {1ULL << 20U, 3'000'000ULL, 9'000'001ULL}) {
    for (const uint32_t idle : {0U, 30U}) {
      const auto table = table_with({.idle_steps = idle, .most_bytes = most});
      for (uint64_t step = 1; step <= 80; ++step) {
        push_all(*table, some_hot(step, 10, 3000), step);
        ASSERT_LE(table->stats().bytes, most) << step;
      }
      EXPECT_GE(table->stats().bytes, most / 3) << most;
      EXPECT_GT(table->stats().evicted, 0);
      EXPECT_EQ(table->stats().admitted, table->stats().rows + table->stats().evicted);
    }
  }
}

TEST(MostBytes, TheColdestGo) {
  const auto limited = table_with({.most_bytes = 2 << 20U});
  const auto unlimited = table_with({});
  constexpr uint64_t kHot = 4000;
  for (uint64_t step = 1; step <= 100; ++step) {
    push_all(*limited, some_hot(step, kHot, 2000), step);
    push_all(*unlimited, some_hot(step, kHot, 2000), step);
  }
  EXPECT_GT(limited->stats().evicted, 100'000);
  uint64_t kept = 0;
  for (uint64_t key = 0; key < kHot; ++key) {
    if (row_of(*limited, key) == row_of(*unlimited, key)) ++kept;
  }
  // A few go with the others: copying an index moves some rows past its hand.
  EXPECT_GE(kept, kHot - kHot / 50);
}

TEST(MostBytes, AKeyWhoseRowWentBeginsAnew) {
  const auto table = table_with({.most_bytes = 1 << 20U});
  push_all(*table, {7}, 1);
  for (uint64_t step = 2; step <= 100; ++step) push_all(*table, some_hot(step, 0, 3000), step);
  EXPECT_FALSE(has_row(*table, 7));
  push_all(*table, {7}, 101);
  const auto fresh = table_with({});
  push_all(*fresh, {7}, 101);
  EXPECT_EQ(row_of(*table, 7), row_of(*fresh, 7));
}

TEST(MostBytes, AllKeysOfAPushAreChangedThoughOthersOfItGo) {
  // A push of more keys than there is memory for: each row is made, and changed once.
  const auto table = table_with({.most_bytes = 1 << 20U});
  const auto unlimited = table_with({});
  const std::vector<uint64_t> keys = some_hot(1, 0, 100'000);
  push_all(*table, keys, 1);
  push_all(*unlimited, keys, 1);
  uint64_t kept = 0;
  for (const uint64_t key : keys) {
    if (!has_row(*table, key)) continue;
    ASSERT_EQ(row_of(*table, key), row_of(*unlimited, key)) << key;
    ++kept;
  }
  EXPECT_EQ(kept, table->stats().rows);
  EXPECT_EQ(table->stats().admitted, 100'000);
}

TEST(MostBytes, RowsOfALargestTableFit) {
  TableSpec spec{.name = "t", .dim = kMaxDim};
  spec.optimizer.kind = OptimizerKind::kAdam;
  spec.retention.most_bytes = kLeastMostBytes;
  auto table = LocalTable::create(spec);
  const std::vector<float> gradients(size_t{kMaxDim} * 100, 1);
  std::vector<uint64_t> keys(100);
  for (uint64_t i = 0; i < 100; ++i) keys[i] = i;
  ASSERT_TRUE((*table)->push(keys, gradients, 1).ok());
  EXPECT_LE((*table)->stats().bytes, kLeastMostBytes);
  EXPECT_GE((*table)->stats().rows, 10);
}

TEST(MostBytes, ARowThatWentInTheSamePushIsNotChangedInItsPlace) {
  // Ten rows fit. A push finds those of ten keys, and loses them to others before it gets there.
  TableSpec spec{.name = "t", .dim = kMaxDim};
  spec.optimizer.kind = OptimizerKind::kAdam;
  auto unlimited = LocalTable::create(spec);
  spec.retention.most_bytes = kLeastMostBytes;
  auto limited = LocalTable::create(spec);
  std::vector<uint64_t> keys(32);
  for (uint64_t i = 0; i < 32; ++i) keys[i] = 31 - i;
  const std::vector<float> gradients(size_t{kMaxDim} * 32, 1);
  const std::span all = gradients;
  for (auto* const table : {&*unlimited, &*limited}) {
    const std::span old = std::span(keys).last(10);
    ASSERT_TRUE((*table)->push(old, all.first(10 * size_t{kMaxDim}), 1).ok());
    ASSERT_TRUE((*table)->push(keys, all, 2).ok());
  }
  EXPECT_GT((*limited)->stats().evicted, 22);
  int kept = 0;
  std::vector<float> one(kMaxDim);
  std::vector<float> other(kMaxDim);
  for (uint64_t key = 10; key < 32; ++key) {
    ASSERT_TRUE((*limited)->pull({&key, 1}, one).ok());
    ASSERT_TRUE((*unlimited)->pull({&key, 1}, other).ok());
    if (one[0] == 0) continue;
    EXPECT_EQ(one, other) << key;
    ++kept;
  }
  for (uint64_t key = 0; key < 10; ++key) {
    ASSERT_TRUE((*limited)->pull({&key, 1}, one).ok());
    if (one[0] != 0) ++kept;
  }
  EXPECT_EQ(kept, (*limited)->stats().rows);
}

TEST(Retention, TheSamePushesGiveTheSameRowsWhateverIsPulled) {
  const Retention retention{.least_pushes = 2, .idle_steps = 30, .most_bytes = 1 << 20U};
  const auto one = table_with(retention);
  const auto other = table_with(retention);
  std::mt19937_64 random(5);
  for (uint64_t step = 1; step <= 100; ++step) {
    std::unordered_set<uint64_t> drawn;
    while (drawn.size() < 3000) drawn.insert(random() % (random() % 2 == 0 ? 40000 : 2000));
    const std::vector<uint64_t> keys(drawn.begin(), drawn.end());
    for (const uint64_t key : keys) (void)row_of(*one, key / 2);
    push_all(*one, keys, step);
    push_all(*other, keys, step);
    ASSERT_EQ(one->stats().rows, other->stats().rows);
  }
  EXPECT_GT(one->stats().evicted, 0);
  for (uint64_t key = 0; key < 40000; ++key)
    ASSERT_EQ(row_of(*one, key), row_of(*other, key)) << key;
}

}  // namespace
}  // namespace corro::table
