// Both searches against references that try everything, on random small instances. The references
// follow the published definitions node by node; they share no code with the searches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "plan/partition/partition.h"

namespace corro::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
using Random = std::mt19937_64;

uint32_t below(Random& random, uint32_t count) { return static_cast<uint32_t>(random() % count); }

MaxLoadInstance random_max_load(Random& random) {
  MaxLoadInstance instance;
  const uint32_t count = 2 + below(random, 7);
  const uint32_t forward = 1 + below(random, count);
  instance.colors = 2 + below(random, 4);
  instance.accelerators = below(random, 3) + 1;
  instance.processors = below(random, 2);
  instance.memory_bytes = below(random, 3) == 0 ? 1 + below(random, 12) : 100;
  instance.nodes.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    instance.ids.push_back(100 - i);
    auto& node = instance.nodes[i];
    node.backward = i >= forward;
    node.on_accelerator = below(random, 12) != 0;
    node.color = below(random, instance.colors);
    node.send_time = below(random, 4);
    node.size = below(random, 3);
    const bool idle = below(random, 2) == 0;
    node.accelerator_time = idle ? 0 : below(random, 10);
    node.processor_time = idle ? 0 : below(random, 30);
    for (uint32_t j = i + 1; j < count; ++j) {
      if (below(random, 3) == 0) node.readers.push_back(j);
    }
  }
  return instance;
}

/// Whether colors on stages make a contiguous split of the forward graph.
bool is_contiguous(const MaxLoadInstance& instance, const std::vector<uint32_t>& stage_of) {
  std::vector<bool> has_forward(instance.colors, false);
  for (const auto& node : instance.nodes) {
    if (!node.backward) has_forward[node.color] = true;
  }
  for (const auto& node : instance.nodes) {
    for (const uint32_t reader : node.readers) {
      const auto& end = instance.nodes[reader];
      if (!node.backward && !end.backward && stage_of[node.color] > stage_of[end.color]) {
        return false;
      }
      const bool mirrored =
          node.backward && end.backward && (!has_forward[node.color] || !has_forward[end.color]);
      if (mirrored && stage_of[end.color] > stage_of[node.color]) return false;
    }
  }
  return true;
}

double load_of(const MaxLoadInstance& instance, const std::vector<uint32_t>& stage_of,
               uint32_t stage, bool on_accelerator) {
  double processor = 0;
  double accelerator = 0;
  double size = 0;
  bool possible = true;
  for (const auto& node : instance.nodes) {
    const bool here = stage_of[node.color] == stage;
    bool crosses = false;
    for (const uint32_t reader : node.readers) {
      crosses = crosses || (stage_of[instance.nodes[reader].color] == stage) != here;
    }
    if (crosses) accelerator += node.send_time;
    if (!here) continue;
    processor += node.processor_time;
    accelerator += node.accelerator_time;
    size += node.size;
    possible = possible && node.on_accelerator;
  }
  if (!on_accelerator) return processor;
  return possible && size <= instance.memory_bytes ? accelerator : kNever;
}

double try_all_splits(const MaxLoadInstance& instance) {
  const uint32_t stages = instance.accelerators + instance.processors;
  double best = kNever;
  std::vector<uint32_t> stage_of(instance.colors, 0);
  while (true) {
    // Bit s: stage s is on an accelerator.
    for (uint32_t kinds = 0; kinds < 1U << stages && is_contiguous(instance, stage_of); ++kinds) {
      if (static_cast<uint32_t>(std::popcount(kinds)) != instance.accelerators) continue;
      double largest = 0;
      for (uint32_t stage = 0; stage < stages; ++stage) {
        largest = std::max(largest, load_of(instance, stage_of, stage, (kinds >> stage & 1U) != 0));
      }
      best = std::min(best, largest);
    }
    uint32_t color = 0;
    while (color < instance.colors && ++stage_of[color] == stages) stage_of[color++] = 0;
    if (color == instance.colors) return best;
  }
}

void expect_optimum(const PartitionInstance& instance, double want) {
  const auto result = solve(instance);
  if (want == kNever) {
    EXPECT_EQ(result.status().code(), Code::kFailedPrecondition) << result.status().message();
    return;
  }
  ASSERT_TRUE(result.ok()) << result.status().message() << ", but there is " << want;
  EXPECT_NEAR(result->objective, want, 1e-9 * (1 + want));
  size_t nodes = 0;
  double slowest = 0;
  for (const PartitionStage& stage : result->stages) {
    nodes += stage.nodes.size();
    slowest = std::max(slowest, stage.time);
  }
  EXPECT_EQ(nodes,
            std::visit([](const auto& problem) { return problem.ids.size(); }, instance.problem));
  EXPECT_EQ(slowest, result->objective);
}

TEST(BruteForce, MaxLoadSearchFindsWhatTryingAllSplitsFinds) {
  int possible = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    MaxLoadInstance instance = random_max_load(random);
    const double want = try_all_splits(instance);
    if (want < kNever) ++possible;
    expect_optimum({"random", std::move(instance)}, want);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(possible, 800);
  EXPECT_LT(possible, 1500);
}

PiperInstance random_piper(Random& random) {
  PiperInstance instance;
  const uint32_t count = 1 + below(random, 4);
  instance.degrees = {1, 2};
  instance.devices = 1 + below(random, 6);
  instance.micro_batches = std::array<uint64_t, 4>{1, 2, 4, 6}[below(random, 4)];
  instance.memory_bytes = 4 + below(random, 60);
  instance.bandwidth = 1 + below(random, 3);
  instance.nodes.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    instance.ids.push_back(i);
    for (uint32_t j = i + 1; j < count; ++j) {
      if (below(random, 2) == 0) continue;
      const double bytes = below(random, 5);
      instance.nodes[i].out.push_back({j, bytes});
      instance.nodes[j].in.push_back({i, bytes});
    }
  }
  for (auto& node : instance.nodes) {
    node.choices.resize(2);
    for (auto& choices : node.choices) {
      const uint32_t ways = below(random, 4);
      for (uint32_t way = 0; way < ways; ++way) {
        auto& choice = choices.emplace_back();
        choice.id = std::to_string(way);
        choice.time = below(random, 20);
        choice.parameter_bytes = below(random, 4);
        choice.memory_in_flight = below(random, 5);
        choice.memory_fixed = below(random, 8);
        for (size_t i = 0; i < node.in.size(); ++i) choice.sync_in.push_back(below(random, 3));
        for (size_t i = 0; i < node.out.size(); ++i) choice.sync_out.push_back(below(random, 3));
      }
    }
  }
  return instance;
}

/// The smallest time of the stage `set` over all choices of its layers.
double try_all_choices(const PiperInstance& instance, uint32_t set, uint32_t tensor_number,
                       uint32_t data, double in_flight, uint32_t node = 0, double time = 0,
                       double memory = 0) {
  if (node == instance.nodes.size()) return memory <= instance.memory_bytes ? time : kNever;
  if ((set >> node & 1U) == 0) {
    return try_all_choices(instance, set, tensor_number, data, in_flight, node + 1, time, memory);
  }
  const auto& layer = instance.nodes[node];
  const double replicas = data;
  double best = kNever;
  for (const auto& choice : layer.choices[tensor_number]) {
    double bytes = 0;
    for (size_t i = 0; i < layer.in.size(); ++i) {
      if ((set >> layer.in[i].node & 1U) == 0) {
        bytes += 2 * (layer.in[i].bytes + choice.sync_in[i]);
      }
    }
    for (size_t i = 0; i < layer.out.size(); ++i) {
      if ((set >> layer.out[i].node & 1U) == 0) {
        bytes += 2 * (layer.out[i].bytes + choice.sync_out[i]);
      }
    }
    const double gradients = 4 * (replicas - 1) / replicas * choice.parameter_bytes /
                             static_cast<double>(instance.micro_batches);
    const double more =
        choice.time / replicas + (bytes / replicas + gradients) / instance.bandwidth;
    best = std::min(
        best, try_all_choices(instance, set, tensor_number, data, in_flight, node + 1, time + more,
                              memory + choice.memory_in_flight * in_flight + choice.memory_fixed));
  }
  return best;
}

bool holds_all_readers(const PiperInstance& instance, uint32_t set) {
  for (uint32_t node = 0; node < instance.nodes.size(); ++node) {
    for (const auto& edge : instance.nodes[node].out) {
      if ((set >> node & 1U) != 0 && (set >> edge.node & 1U) == 0) return false;
    }
  }
  return true;
}

/// `done` holds the layers of all later stages, whose data parallel degrees add up to `sum`.
double try_all_pipelines(const PiperInstance& instance, uint32_t done = 0, uint32_t devices = 0,
                         uint64_t sum = 0) {
  const uint32_t all = (1U << instance.nodes.size()) - 1;
  if (done == all) return 0;
  double best = kNever;
  for (uint32_t set = 1; set <= all; ++set) {
    if ((set & done) != 0 || !holds_all_readers(instance, set | done)) continue;
    for (uint32_t number = 0; number < instance.degrees.size(); ++number) {
      for (uint32_t data = 1; devices + data * instance.degrees[number] <= instance.devices;
           ++data) {
        const uint64_t total = sum + data;
        if (instance.micro_batches % data != 0 || total > instance.micro_batches) continue;
        const double in_flight = std::ceil(static_cast<double>(total) / data);
        const double time = try_all_choices(instance, set, number, data, in_flight);
        if (time >= best) continue;
        const double rest = try_all_pipelines(instance, set | done,
                                              devices + data * instance.degrees[number], total);
        best = std::min(best, std::max(time, rest));
      }
    }
  }
  return best;
}

TEST(BruteForce, PiperSearchFindsWhatTryingAllPipelinesFinds) {
  int possible = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    PiperInstance instance = random_piper(random);
    const double want = try_all_pipelines(instance);
    if (want < kNever) ++possible;
    expect_optimum({"random", std::move(instance)}, want);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(possible, 200);
  EXPECT_LT(possible, 1000);
}

}  // namespace
}  // namespace corro::plan
