#include "table/initial.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace corro::table {
namespace {

std::vector<float> initial(const Initial& initial, uint64_t key, uint64_t seed = 5,
                           uint32_t dim = 7) {
  std::vector<float> values(dim);
  write_initial({.name = "t", .dim = dim, .seed = seed, .initial = initial}, key, values);
  return values;
}

constexpr Initial kUniform{.kind = InitialKind::kUniform, .low = -2, .high = 3};
constexpr Initial kNormal{.kind = InitialKind::kNormal, .low = 10, .high = 2};

TEST(Initial, ConstantIsLow) { EXPECT_EQ(initial({.low = 0.5F}, 9), std::vector<float>(7, 0.5F)); }

TEST(Initial, IsAFunctionOfSeedKeyAndElement) {
  EXPECT_EQ(initial(kUniform, 1), initial(kUniform, 1));
  std::set<float> all;
  for (const uint64_t seed : {5U, 6U}) {
    for (const uint64_t key : {0U, 1U, 2U}) {
      for (const float value : initial(kUniform, key, seed)) all.insert(value);
    }
  }
  EXPECT_EQ(all.size(), 2 * 3 * 7);
}

TEST(Initial, DiffersByTheTablesName) {
  TableSpec spec{.name = "users", .dim = 4, .initial = {.kind = InitialKind::kNormal, .high = 1}};
  std::vector<float> users(4);
  std::vector<float> films(4);
  write_initial(spec, 7, users);
  spec.name = "films";
  write_initial(spec, 7, films);
  for (size_t i = 0; i < 4; ++i) EXPECT_NE(users[i], films[i]);
}

TEST(Initial, IsTheSameForEver) {
  // Rows that are not kept are made again, perhaps by another version.
  const std::vector<float> uniform = initial(kUniform, 42, 1, 2);
  const std::vector<float> normal = initial(kNormal, 42, 1, 2);
  EXPECT_EQ(uniform, (std::vector<float>{0x1.6376a8p+0F, -0x1.0ff3eep+0F}));
  EXPECT_EQ(normal, (std::vector<float>{0x1.2566e2p+3F, 0x1.94587cp+3F}));
}

TEST(Initial, UniformFillsItsRangeAndStaysInIt) {
  double sum = 0;
  double squares = 0;
  constexpr int kKeys = 20000;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const float value = initial(kUniform, key, 5, 1)[0];
    ASSERT_GE(value, -2);
    ASSERT_LT(value, 3);
    sum += value;
    squares += (value - 0.5) * (value - 0.5);
  }
  EXPECT_NEAR(sum / kKeys, 0.5, 0.04);
  EXPECT_NEAR(squares / kKeys, 25.0 / 12, 0.06);
}

TEST(Initial, UniformIsBelowHighAlsoWhereItRounds) {
  const float low = 1;
  const float high = std::nextafter(low, 2.0F);
  const Initial narrow{.kind = InitialKind::kUniform, .low = low, .high = high};
  for (uint64_t key = 0; key < 100; ++key) EXPECT_EQ(initial(narrow, key, 5, 1)[0], low);
}

TEST(Initial, NormalIsNormal) {
  // The share of values within so many deviations of the mean.
  constexpr std::pair<double, double> kShares[] = {
      {0.1, 0.0796557}, {0.5, 0.3829249}, {1, 0.6826895}, {2, 0.9544997}, {3, 0.9973002}};
  constexpr int kKeys = 40000;
  std::vector<double> deviations;
  double sum = 0;
  for (uint64_t key = 0; key < kKeys; ++key) {
    deviations.push_back((initial(kNormal, key, 5, 1)[0] - 10.0) / 2);
    sum += deviations.back();
  }
  EXPECT_NEAR(sum / kKeys, 0, 0.02);
  for (const auto& [most, share] : kShares) {
    double within = 0;
    for (const double deviation : deviations) within += std::abs(deviation) <= most ? 1 : 0;
    EXPECT_NEAR(within / kKeys, share, 0.01) << most;
  }
}

}  // namespace
}  // namespace corro::table
