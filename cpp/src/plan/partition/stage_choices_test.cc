#include "plan/partition/stage_choices.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace corro::plan {
namespace {

constexpr double kNoTime = std::numeric_limits<double>::infinity();
using Layers = std::vector<std::vector<LayerWay>>;

double try_all(const Layers& layers, double memory, uint64_t in_flight, size_t layer = 0) {
  if (layer == layers.size()) return memory >= 0 ? 0 : kNoTime;
  double best = kNoTime;
  for (const LayerWay& way : layers[layer]) {
    const double needed = way.memory_in_flight * static_cast<double>(in_flight) + way.memory_fixed;
    best = std::min(best, way.time + try_all(layers, memory - needed, in_flight, layer + 1));
  }
  return best;
}

void expect_fastest(const Layers& layers, double memory) {
  StageChoices choices(memory);
  for (const auto& ways : layers) choices.add_node(ways);
  for (uint64_t in_flight = 1; in_flight <= 6; ++in_flight) {
    const double want = try_all(layers, memory, in_flight);
    ASSERT_EQ(choices.find(in_flight), want < kNoTime) << in_flight;
    if (want == kNoTime) continue;
    EXPECT_NEAR(choices.time(), want, 1e-9);
    double time = 0;
    double bytes = 0;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const LayerWay& way = layers[layer][choices.picks()[layer]];
      time += way.time;
      bytes += way.memory_in_flight * static_cast<double>(in_flight) + way.memory_fixed;
    }
    EXPECT_NEAR(time, choices.time(), 1e-9);
    EXPECT_EQ(bytes, choices.memory(in_flight));
    EXPECT_LE(bytes, memory);
    const uint64_t end = choices.fits_up_to(100);
    EXPECT_GE(end, in_flight);
    EXPECT_LE(choices.memory(end), memory);
    EXPECT_TRUE(end == 100 || choices.memory(end + 1) > memory) << end;
  }
  EXPECT_FALSE(choices.gave_up());
}

TEST(StageChoices, FindsWhatTryingAllFinds) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Layers layers(1 + random() % 6);
    for (auto& ways : layers) {
      ways.resize(1 + random() % 4);
      for (LayerWay& way : ways) {
        way = {static_cast<double>(random() % 20), static_cast<double>(random() % 6),
               static_cast<double>(random() % 10)};
      }
    }
    expect_fastest(layers, static_cast<double>(random() % 80));
  }
}

TEST(StageChoices, OfLayersAlikeTheCheapestChange) {
  StageChoices choices(29);
  for (int layer = 0; layer < 4; ++layer) {
    const std::vector<LayerWay> ways{{1, 0, 10}, {2.0 + layer, 0, 4}};
    choices.add_node(ways);
  }
  ASSERT_TRUE(choices.find(1));  // 40 bytes: two layers have to save 6 each.
  EXPECT_EQ(choices.time(), 4 + 1 + 2);
  EXPECT_EQ(choices.picks(), (std::vector<uint32_t>{1, 1, 0, 0}));
}

TEST(StageChoices, ManyLayersAlikeNeedFewTries) {
  StageChoices choices(1000);
  for (int layer = 0; layer < 200; ++layer) {
    const std::vector<LayerWay> ways{{1, 0, 10}, {2 + 0.001 * layer, 0, 3}};
    choices.add_node(ways);
  }
  ASSERT_TRUE(choices.find(1));
  EXPECT_LT(choices.tries(), 1000U);
}

}  // namespace
}  // namespace corro::plan
