#include "table/local_table.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "table/naive_table.h"

namespace corro::table {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<LocalTable> make(const TableSpec& spec) {
  auto table = LocalTable::create(spec);
  EXPECT_TRUE(table.ok()) << table.status().message();
  return std::move(*table);
}

std::vector<float> pull(const LocalTable& table, const std::vector<uint64_t>& keys) {
  std::vector<float> values(keys.size() * table.spec().dim);
  EXPECT_TRUE(table.pull(keys, values).ok());
  return values;
}

const TableSpec kSmall{.name = "small", .dim = 2, .optimizer = {.lr = 0.5F}, .initial = {.low = 1}};

TEST(LocalTable, AKeyWithoutARowHasInitialValuesAndGetsNoRow) {
  const auto table = make(kSmall);
  EXPECT_EQ(pull(*table, {3, 3, 9}), std::vector<float>(6, 1));
  EXPECT_EQ(table->stats().rows, 0);
}

TEST(LocalTable, APushMakesARowAndChangesIt) {
  const auto table = make(kSmall);
  const std::vector<uint64_t> keys = {7, 0, ~uint64_t{0}};
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(table->push(keys, gradients, 1).ok());
  EXPECT_EQ(pull(*table, {0, 7, ~uint64_t{0}, 1}),
            (std::vector<float>{-0.5, -1, 0.5, 0, -1.5, -2, 1, 1}));
  EXPECT_EQ(table->stats().rows, 3);
  EXPECT_EQ(table->stats().admitted, 3);
}

TEST(LocalTable, EmptyPullsAndPushesDoNothing) {
  const auto table = make(kSmall);
  EXPECT_TRUE(table->pull({}, {}).ok());
  EXPECT_TRUE(table->push({}, {}, 1).ok());
  EXPECT_EQ(table->stats().rows, 0);
}

TEST(LocalTable, TheLearningRateChangesFromTheNextPushOn) {
  const auto table = make(kSmall);
  ASSERT_TRUE(table->push(std::vector<uint64_t>{1}, std::vector<float>{1, 1}, 1).ok());
  ASSERT_TRUE(table->set_lr(0.25F).ok());
  ASSERT_TRUE(table->push(std::vector<uint64_t>{1}, std::vector<float>{1, 1}, 2).ok());
  EXPECT_EQ(pull(*table, {1}), (std::vector<float>{0.25, 0.25}));
  EXPECT_EQ(table->spec().optimizer.lr, 0.25F);
  for (const float bad : {0.0F, -1.0F, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    const Status status = table->set_lr(bad);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("table small: optimizer.lr is "));
  }
  EXPECT_EQ(table->spec().optimizer.lr, 0.25F);
}

TEST(LocalTable, AGradientThatIsNotFiniteChangesNoRow) {
  const auto table = make(kSmall);
  std::vector<uint64_t> keys(100);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i + 1000;
  std::vector<float> gradients(200, 1);
  for (const auto& [bad, text] : {std::pair{std::numeric_limits<float>::quiet_NaN(), "nan"},
                                  std::pair{-std::numeric_limits<float>::infinity(), "-inf"}}) {
    gradients[2 * 67 + 1] = bad;
    const Status status = table->push(keys, gradients, 1);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr("table small: the gradient of key 1067, at place 67 of the push, is "));
    EXPECT_THAT(status.message(), HasSubstr(text));
    EXPECT_THAT(status.message(), HasSubstr("element 1"));
  }
  EXPECT_EQ(table->stats().rows, 0);
}

TEST(LocalTable, RefusesABadSpec) {
  EXPECT_EQ(LocalTable::create({.name = "t", .dim = 0}).status().code(), Code::kInvalidArgument);
}

/// Pushes of random keys, of which half come often and half hardly ever again.
class Pushes {
 public:
  Pushes(uint32_t dim, uint64_t seed) : dim_(dim), random_(seed) {}

  void draw(size_t count) {
    keys.clear();
    gradients.clear();
    std::unordered_set<uint64_t> seen;
    while (keys.size() < count) {
      const uint64_t key = random_() % 2 == 0 ? random_() % 1000 : random_();
      if (!seen.insert(key).second) continue;
      keys.push_back(key);
      for (uint32_t i = 0; i < dim_; ++i) {
        gradients.push_back(static_cast<float>(random_() % 2001) / 1000 - 1);
      }
    }
  }
  std::vector<uint64_t> keys;
  std::vector<float> gradients;

 private:
  uint32_t dim_;
  std::mt19937_64 random_;
};

class AllTables : public testing::TestWithParam<std::tuple<OptimizerKind, DType>> {};

TEST_P(AllTables, DoAsAMapDoes) {
  for (const uint32_t dim : {1U, 16U, 33U}) {
    TableSpec spec{.name = "t", .dim = dim, .dtype = std::get<1>(GetParam()), .seed = 3};
    spec.optimizer.kind = std::get<0>(GetParam());
    spec.initial = {.kind = InitialKind::kUniform, .low = -1, .high = 1};
    const auto table = make(spec);
    NaiveTable naive(spec);
    Pushes pushes(dim, 1);
    for (uint64_t step = 1; step <= 12; ++step) {
      pushes.draw(500);
      for (const uint64_t key : pushes.keys) ASSERT_EQ(pull(*table, {key}), naive.pull(key));
      ASSERT_TRUE(table->push(pushes.keys, pushes.gradients, step).ok());
      naive.push(pushes.keys, pushes.gradients, step);
      ASSERT_EQ(table->stats().rows, naive.rows.size());
    }
    for (const auto& [key, row] : naive.rows)
      ASSERT_EQ(pull(*table, {key}), row.first.weights) << key;
  }
}

/// The rows of some keys go to another table in the middle; both go on, each with its keys.
TEST_P(AllTables, GoOnBitForBitWhereRowsWereCopied) {
  TableSpec spec{.name = "t", .dim = 5, .dtype = std::get<1>(GetParam()), .seed = 3};
  spec.optimizer.kind = std::get<0>(GetParam());
  spec.initial = {.kind = InitialKind::kUniform, .low = -1, .high = 1};
  spec.retention.idle_steps = 4;
  const auto whole = make(spec);
  const auto copy = make(spec);
  const auto moved = [](uint64_t key) { return key % 3 == 0; };
  Pushes pushes(spec.dim, 1);
  for (uint64_t step = 1; step <= 12; ++step) {
    pushes.draw(300);
    ASSERT_TRUE(whole->push(pushes.keys, pushes.gradients, step).ok());
    if (step > 6) {
      std::vector<uint64_t> keys;
      std::vector<float> gradients;
      for (size_t i = 0; i < pushes.keys.size(); ++i) {
        if (!moved(pushes.keys[i])) continue;
        keys.push_back(pushes.keys[i]);
        const auto row = pushes.gradients.begin() + static_cast<ptrdiff_t>(i * spec.dim);
        gradients.insert(gradients.end(), row, row + spec.dim);
      }
      ASSERT_TRUE(copy->push(keys, gradients, step).ok());
    }
    if (step == 6) {
      const auto keys = whole->keys_with_rows(moved);
      EXPECT_GT(keys.size(), 100U);
      std::vector<std::byte> rows(keys.size() * whole->packed_bytes());
      ASSERT_TRUE(whole->pack(keys, rows).ok());
      ASSERT_TRUE(copy->unpack(keys, rows, step).ok());
    }
    for (uint64_t key = 0; step >= 6 && key < 1000; key += 3)
      ASSERT_EQ(pull(*copy, {key}), pull(*whole, {key})) << step << " " << key;
  }
}

TEST(LocalTable, RowsThatAreUnpackedInReservedMemoryAreTheSame) {
  TableSpec spec = kSmall;
  spec.retention.idle_steps = 100;
  const auto whole = make(spec);
  std::vector<uint64_t> keys(5000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * i;
  ASSERT_TRUE(whole->push(keys, std::vector<float>(keys.size() * spec.dim, 1), 1).ok());
  std::vector<std::byte> rows(keys.size() * whole->packed_bytes());
  ASSERT_TRUE(whole->pack(keys, rows).ok());
  const auto copy = make(spec);
  copy->reserve(keys.size());
  const uint64_t reserved = copy->stats().bytes;
  for (int round = 0; round < 2; ++round) ASSERT_TRUE(copy->unpack(keys, rows, 1).ok());
  EXPECT_EQ(copy->stats().rows, keys.size());
  EXPECT_EQ(pull(*copy, keys), pull(*whole, keys));
  EXPECT_GE(reserved, keys.size() * 17);
  std::vector<std::byte> again(rows.size());
  ASSERT_TRUE(copy->pack(keys, again).ok());
  EXPECT_EQ(again, rows);
}

TEST(LocalTable, WhatIsForgottenHasItsInitialValuesAgain) {
  const auto table = make(kSmall);
  const std::vector<uint64_t> keys = {1, 2, 3};
  ASSERT_TRUE(table->push(keys, std::vector<float>(6, 1), 1).ok());
  table->forget([](uint64_t key) { return key != 2; });
  EXPECT_EQ(pull(*table, keys), (std::vector<float>{1, 1, 0.5, 0.5, 1, 1}));
  EXPECT_EQ(table->stats().rows, 1);
  ASSERT_TRUE(table->push(keys, std::vector<float>(6, 1), 2).ok());
  EXPECT_EQ(pull(*table, keys), (std::vector<float>{0.5, 0.5, 0, 0, 0.5, 0.5}));
}

INSTANTIATE_TEST_SUITE_P(
    All, AllTables,
    testing::Combine(testing::Values(OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                     OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
                                     OptimizerKind::kAdam, OptimizerKind::kFtrl),
                     testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
    [](const auto& one) {
      return std::string(name_of(std::get<0>(one.param))) + "_" +
             std::string(name_of(std::get<1>(one.param)));
    });

TEST(LocalTable, AMillionRowsTakeAtMost18BytesEachBesideTheirValues) {
  const auto table = make({.name = "t", .dim = 16});
  constexpr size_t kRows = 1'000'000;
  constexpr size_t kKeys = 10'000;
  const std::vector<float> gradients(kKeys * 16, 1);
  std::vector<uint64_t> keys(kKeys);
  for (size_t begin = 0; begin < kRows; begin += kKeys) {
    for (size_t i = 0; i < kKeys; ++i) keys[i] = begin + i;
    ASSERT_TRUE(table->push(keys, gradients, 1 + begin / kKeys).ok());
  }
  const TableStats stats = table->stats();
  EXPECT_EQ(stats.rows, kRows);
  const double beside = static_cast<double>(stats.bytes) / kRows - 64;
  EXPECT_LE(beside, 18);
  EXPECT_GE(beside, 13);
}

TEST(LocalTable, ASmallTableIsSmall) {
  const auto table = make({.name = "t", .dim = 16});
  const std::vector<float> gradients(16, 1);
  ASSERT_TRUE(table->push(std::vector<uint64_t>{1}, gradients, 1).ok());
  EXPECT_LE(table->stats().bytes, 24'000);
}

}  // namespace
}  // namespace corro::table
