#include "plan/search/plan_graph.h"

#include <gtest/gtest.h>

#include "graph/cut.h"
#include "graph/minimum_period.h"

namespace corro::plan {
namespace {

/// Stages that take what is given, forward a third of it.
Candidate pipeline(const std::vector<double>& periods, uint32_t micro_batches) {
  Candidate candidate;
  candidate.shape.pipeline = static_cast<uint32_t>(periods.size());
  candidate.shape.micro_batches = micro_batches;
  for (const double period : periods) {
    PlannedStage stage{.devices = 1};
    stage.estimate.forward = period / 3;
    stage.estimate.backward = period * 2 / 3;
    stage.estimate.memory.activations = 4096;
    candidate.stages.push_back(stage);
  }
  return candidate;
}

double simulated(const Candidate& candidate) {
  const auto seconds = simulate(candidate);
  EXPECT_TRUE(seconds.ok()) << seconds.status().message();
  return *seconds;
}

TEST(PlanGraph, EqualStagesTakeWhatTheFormulaSays) {
  for (const uint32_t p : {1U, 2U, 4U, 8U}) {
    for (const uint32_t m : {1U, 3U, 8U, 32U}) {
      EXPECT_NEAR(simulated(pipeline(std::vector<double>(p, 3.0), m)), 3.0 * (m + p - 1), 1e-6)
          << p << " stages, " << m << " micro-batches";
    }
  }
}

TEST(PlanGraph, InSteadyStateAMicroBatchTakesTheLeastPeriod) {
  for (const auto& periods : {std::vector<double>{3, 3, 3, 3}, {1, 2, 6, 2}, {6, 1, 1}}) {
    const auto plan = graph::expand(graph_of(pipeline(periods, 8), 1));
    const double theory = graph::minimum_period_ns(plan) * 1e-9;
    const double more = simulated(pipeline(periods, 80)) - simulated(pipeline(periods, 60));
    EXPECT_NEAR(more / 20, theory, 1e-6);
  }
}

TEST(PlanGraph, HasEveryRankWithItsStash) {
  Candidate candidate = pipeline({3, 3}, 4);
  candidate.shape.tensor = 2;
  candidate.shape.data = 3;
  const graph::Plan all = graph_of(candidate, 0);
  EXPECT_EQ(all.ranks, 12U);
  EXPECT_EQ(all.services.size(), 24U);
  EXPECT_TRUE(graph::check(all).ok());
  // Stage 0 holds two micro-batches, stage 1 one: 4096 bytes altogether on each rank.
  uint64_t bytes = 0;
  for (const auto& channel : all.channels) bytes += channel.slots * channel.slot_bytes;
  EXPECT_EQ(bytes, 12U * 4096);
  EXPECT_EQ(graph_of(candidate, 1).ranks, 2U);
}

TEST(PlanGraph, FewerCreditsCostTime) {
  const Candidate candidate = pipeline({3, 3, 3, 3}, 8);
  const auto with = [&](const std::vector<uint32_t>& credits) {
    return *simulate(candidate, credits);
  };
  EXPECT_NEAR(with({4, 3, 2, 1}), 33, 1e-6);
  EXPECT_NEAR(with({3, 3, 2, 1}), 39, 1e-6);
  EXPECT_NEAR(with({2, 2, 2, 1}), 51, 1e-6);
  EXPECT_NEAR(with({1, 1, 1, 1}), 96, 1e-6);
}

TEST(PlanGraph, ZeroBubbleShortensTheFill) {
  for (const uint32_t p : {2U, 4U, 8U}) {
    Candidate candidate = pipeline(std::vector<double>(p, 3.0), 4 * p);
    candidate.shape.schedule = Schedule::kZeroBubble;
    // Forward 1, gradients of inputs 1, of weights 1.
    for (auto& stage : candidate.stages) stage.estimate.weight_part = 1;
    // The paper's fill is 1 a stage, 1F1B's 3; by priorities it is at most 2.
    EXPECT_GE(simulated(candidate), 3.0 * 4 * p + (p - 1)) << p;
    EXPECT_LE(simulated(candidate), 3.0 * 4 * p + 2 * (p - 1) + 1e-6) << p;
    uint64_t bytes = 0;
    for (const auto& channel : graph_of(candidate, 1).channels) {
      bytes += channel.slots * channel.slot_bytes;
    }
    EXPECT_NEAR(static_cast<double>(bytes), 4096.0 * p, p * (p + 1));  // Rounded down by slot.
  }
}

TEST(PlanGraph, NoPriorityBeatsTheLeastPeriod) {
  // A lane that goes by priority can be slower than the theory: {5, 1, 1, 4} takes 5.2, not 5.
  const std::vector<double> periods{5, 1, 1, 4};
  const auto plan = graph::expand(graph_of(pipeline(periods, 8), 1));
  const double more = simulated(pipeline(periods, 80)) - simulated(pipeline(periods, 60));
  EXPECT_GE(more / 20, graph::minimum_period_ns(plan) * 1e-9);
}

}  // namespace
}  // namespace corro::plan
