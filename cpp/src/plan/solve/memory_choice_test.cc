#include "plan/solve/memory_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "plan/solve/transformer_graph.h"

namespace corro::plan {
namespace {

using ::testing::ElementsAre;

/// T3: six equal layers that keep activations, recompute some, or recompute all.
const LayerChoices kBlock{.count = 6, .options = {{3, 5}, {3.4, 3}, {4, 1}}};

/// The least time of all choices; layer after layer.
double brute_force(std::span<const LayerChoices> types, size_t type, uint32_t layer, double room,
                   size_t first_option) {
  if (type == types.size()) return 0;
  if (layer == types[type].count) return brute_force(types, type + 1, 0, room, 0);
  double least = std::numeric_limits<double>::infinity();
  for (size_t option = first_option; option < types[type].options.size(); ++option) {
    const auto& [time, memory] = types[type].options[option];
    if (memory > room + 1e-9) continue;
    least = std::min(least, time + brute_force(types, type, layer + 1, room - memory, option));
  }
  return least;
}

double brute_force(std::span<const LayerChoices> types, double limit) {
  return brute_force(types, 0, 0, limit, 0);
}

std::vector<LayerChoices> random_types(RandomCosts& costs, uint32_t most_layers) {
  std::vector<LayerChoices> types(1 + costs.upto(3));
  for (LayerChoices& type : types) {
    type.count = costs.upto(most_layers + 1);
    type.options.resize(1 + costs.upto(4));
    for (LayerOption& option : type.options) option = {costs.next(), costs.next()};
  }
  return types;
}

/// A limit between what is needed and what would be enough for everything.
double random_limit(std::span<const LayerChoices> types, RandomCosts& costs) {
  double most = 0;
  for (const LayerChoices& type : types)
    most += type.count * std::ranges::max(type.options, {}, &LayerOption::memory).memory;
  const double least = least_memory(types);
  return least + (most - least) * costs.next() / 10;
}

void expect_adds_up(std::span<const LayerChoices> types, const MemoryChoice& choice, double limit) {
  double time = 0;
  double memory = 0;
  ASSERT_EQ(choice.counts.size(), types.size());
  for (size_t type = 0; type < types.size(); ++type) {
    uint32_t layers = 0;
    for (size_t option = 0; option < types[type].options.size(); ++option) {
      layers += choice.counts[type][option];
      time += choice.counts[type][option] * types[type].options[option].time;
      memory += choice.counts[type][option] * types[type].options[option].memory;
    }
    EXPECT_EQ(layers, types[type].count);
  }
  EXPECT_NEAR(choice.time, time, 1e-9);
  EXPECT_NEAR(choice.memory, memory, 1e-9);
  EXPECT_LE(choice.memory, limit + 1e-9);
  EXPECT_LE(choice.bound, choice.time);
}

TEST(MemoryChoice, ChoosesRecomputeForSixLayers) {  // T3
  const std::span<const LayerChoices> types{&kBlock, 1};
  const std::vector<std::pair<double, double>> rows{
      {30, 18}, {24, 19.2}, {18, 20.4}, {12, 22.2}, {6, 24}};
  for (const auto& [limit, time] : rows) {
    const auto choice = choose_quickly(types, limit);
    ASSERT_TRUE(choice) << limit;
    EXPECT_NEAR(choice->time, time, 1e-9) << limit;
    expect_adds_up(types, *choice, limit);
  }
  EXPECT_THAT(choose_quickly(types, 24)->counts, ElementsAre(ElementsAre(3, 3, 0)));
  EXPECT_FALSE(choose_quickly(types, 5));
  EXPECT_EQ(MemoryOptions({kBlock.options}).bound(std::vector<uint32_t>{kBlock.count}, 5),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(least_memory(types), 6);
}

TEST(MemoryChoice, EnclosesTheLeastTimeOfAllChoices) {
  RandomCosts costs(3);
  for (int i = 0; i < 400; ++i) {
    const std::vector<LayerChoices> types = random_types(costs, 4);
    const double limit = random_limit(types, costs);
    const double least = brute_force(types, limit);
    const auto choice = choose_quickly(types, limit);
    ASSERT_TRUE(choice);
    EXPECT_GE(choice->time, least - 1e-9) << i;
    EXPECT_LE(choice->bound, least + 1e-9) << i;
    if (choice->exact) {
      EXPECT_NEAR(choice->time, least, 1e-9) << i;
    }
    expect_adds_up(types, *choice, limit);
  }
}

TEST(MemoryChoice, QuickChoiceIsWithinOneStepOfOneLayerOfTheBound) {
  RandomCosts costs(4);
  for (int i = 0; i < 400; ++i) {
    const std::vector<LayerChoices> types = random_types(costs, 40);
    const double limit = random_limit(types, costs);
    const auto choice = choose_quickly(types, limit);
    ASSERT_TRUE(choice);
    double step = 0;
    for (const LayerChoices& type : types) {
      const auto [fastest, slowest] = std::ranges::minmax(type.options, {}, &LayerOption::time);
      if (type.count > 0) step = std::max(step, slowest.time - fastest.time);
    }
    EXPECT_LE(choice->time, choice->bound + step + 1e-9);
    expect_adds_up(types, *choice, limit);
  }
}

TEST(MemoryChoice, QuickChoiceOfOneTypeIsTheBestPair) {
  RandomCosts costs(8);
  for (int i = 0; i < 100; ++i) {
    LayerChoices type{.count = 1 + costs.upto(12), .options = {}};
    for (int option = 0; option < 6; ++option) type.options.push_back({costs.next(), costs.next()});
    const std::span<const LayerChoices> types{&type, 1};
    const double limit = random_limit(types, costs);
    double least = std::numeric_limits<double>::infinity();
    for (const LayerOption& one : type.options) {
      for (const LayerOption& other : type.options) {
        for (uint32_t split = 0; split <= type.count; ++split) {
          const uint32_t rest = type.count - split;
          if (one.memory * split + other.memory * rest <= limit)
            least = std::min(least, one.time * split + other.time * rest);
        }
      }
    }
    EXPECT_NEAR(choose_quickly(types, limit)->time, least, 1e-9);
  }
}

TEST(MemoryChoice, MoreMemoryNeverRaisesTheBound) {
  RandomCosts costs(5);
  for (int i = 0; i < 50; ++i) {
    const std::vector<LayerChoices> types = random_types(costs, 6);
    double before = std::numeric_limits<double>::infinity();
    const double least = least_memory(types);
    for (int step = 0; step < 20; ++step) {
      const double limit = least * (1 + 0.1 * step) + 0.2 * step;
      const double bound = choose_quickly(types, limit)->bound;
      EXPECT_LE(bound, before + 1e-9);
      before = bound;
    }
  }
}

TEST(MemoryChoice, TakesNoLayersAndNoMemory) {
  EXPECT_EQ(choose_quickly({}, 0)->time, 0);
  const LayerChoices none{.count = 0, .options = {{1, 1}}};
  EXPECT_EQ(choose_quickly({&none, 1}, 0)->time, 0);
  const LayerChoices free{.count = 3, .options = {{2, 0}, {1, 1}}};
  EXPECT_EQ(choose_quickly({&free, 1}, 0)->time, 6);
  EXPECT_EQ(choose_quickly({&free, 1}, 0)->memory, 0);
}

TEST(MemoryChoice, RefusesTypesWithoutOptionsAndCostsThatAreNone) {
  const LayerChoices none{.count = 1, .options = {}};
  EXPECT_THROW((void)choose_quickly({&none, 1}, 1), ContractError);
  const LayerChoices bad{.count = 1, .options = {{std::nan(""), 1}}};
  EXPECT_THROW((void)choose_quickly({&bad, 1}, 1), ContractError);
  const LayerChoices negative{.count = 1, .options = {{1, -1}}};
  EXPECT_THROW((void)least_memory({&negative, 1}), ContractError);
}

}  // namespace
}  // namespace corro::plan
