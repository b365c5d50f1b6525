#include "plan/search/fractions.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/solve/transformer_graph.h"

namespace corro::plan {
namespace {

/// Two ways: slow and small, fast and large.
PoolOfFractions pool_of(RandomCosts& random, uint32_t stages) {
  PoolOfFractions pool{.ways = {{12 + random.next(), 1}, {1 + random.next(), 3 + random.next()}},
                       .flights = {},
                       .fixed = random.next() / 10,
                       .limit = 10 + 2 * random.next(),
                       .units = 1 + random.upto(3)};
  for (uint32_t s = 1; s <= stages; ++s) pool.flights.push_back(s);
  return pool;
}

/// Tries every pool for every stage, from stage `s` before the last one on.
double tried(const std::vector<PoolOfFractions>& pools, std::vector<uint32_t>& units,
             uint32_t stages, uint32_t s, double period) {
  if (s == stages) return 0;
  double best = -1e9;
  for (size_t p = 0; p < pools.size(); ++p) {
    if (units[p] == 0) continue;
    PoolOfFractions one = pools[p];
    one.flights = {one.flights[s]};
    --units[p];
    best =
        std::max(best, layers_held({one}, 1, period) + tried(pools, units, stages, s + 1, period));
    ++units[p];
  }
  return best;
}

TEST(Fractions, TheBestPoolForEachStageIsFound) {
  RandomCosts random(5);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    const uint32_t stages = 1 + random.upto(5);
    std::vector<PoolOfFractions> pools;
    std::vector<uint32_t> units;
    for (uint32_t p = 0; p < 1 + static_cast<uint32_t>(i) % 3; ++p) {
      pools.push_back(pool_of(random, stages));
      units.push_back(pools.back().units);
    }
    const double period = 5 + 3 * random.next();
    const double best = std::max(0.0, tried(pools, units, stages, 0, period));
    EXPECT_NEAR(layers_held(pools, stages, period), best, 1e-9);
  }
}

// 10 bytes and 9 seconds: two layers kept whole (4 bytes and 1 second each) and one recomputed (1
// byte and 7 seconds) take 9 bytes; a mix takes all of both.
TEST(Fractions, AMixFillsTimeAndMemory) {
  const PoolOfFractions pool{
      .ways = {{7, 1}, {1, 4}}, .flights = {1}, .fixed = 0, .limit = 10, .units = 1};
  const double held = layers_held({pool}, 1, 9);
  // x recomputed, y kept: 7 x + y = 9 and x + 4 y = 10.
  EXPECT_NEAR(held, 26.0 / 27 + 61.0 / 27, 1e-12);
}

// The numbers above, of two stages with half of the memory each.
TEST(Fractions, AMicroBatchIsSlowedByWhatMemoryDemands) {
  const PoolOfFractions pool{
      .ways = {{7, 1}, {1, 4}}, .flights = {1, 2}, .fixed = 0, .limit = 5, .units = 2};
  EXPECT_NEAR(least_slowing(pool, 87.0 / 27, 2), 9 - 87.0 / 27, 1e-2);
  EXPECT_EQ(least_slowing(pool, 2, 2), 0);
}

TEST(Fractions, NothingIsHeldWhereUnitsAreMissing) {
  const PoolOfFractions pool{
      .ways = {{1, 1}}, .flights = {1, 2}, .fixed = 0, .limit = 10, .units = 1};
  EXPECT_EQ(layers_held({pool}, 2, 9), 0);
  EXPECT_GT(layers_held({pool, pool}, 2, 9), 0);
}

}  // namespace
}  // namespace corro::plan
