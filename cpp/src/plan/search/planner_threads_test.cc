// Plans are made on several threads at a time, and know nothing of each other: the thread sanitizer
// looks on.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "plan/cost/runs.h"
#include "plan/model/transformer.h"
#include "plan/search/planner.h"

namespace corro::plan {
namespace {

Request request_of(uint32_t layers) {
  const Machine machine = default_machine();
  Cluster cluster;
  cluster.types = {machine.device};
  cluster.hosts = {machine.host};
  cluster.hosts[0].count = 2;
  cluster.hosts[0].devices = 8;
  return {
      .model = make_transformer(
          {.layers = layers, .hidden = 4096, .heads = 32, .vocabulary = 50000, .sequence = 2048}),
      .cluster = cluster,
      .global_batch = 64};
}

TEST(Planner, PlansOnSeveralThreadsAreThoseOfOne) {
  constexpr std::array<uint32_t, 4> kLayers = {24, 32, 24, 32};
  std::array<double, 4> steps{};
  {
    std::array<std::jthread, 4> threads;
    for (size_t i = 0; i < threads.size(); ++i) {
      threads[i] = std::jthread([&, i] {
        const auto decision = make_plan(request_of(kLayers[i]));
        if (decision.ok()) steps[i] = decision->best.step;
      });
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto alone = make_plan(request_of(kLayers[i]));
    ASSERT_TRUE(alone.ok()) << alone.status().message();
    EXPECT_EQ(steps[i], alone->best.step);
  }
}

}  // namespace
}  // namespace corro::plan
