#include "plan/cost/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/cost/runs.h"
#include "plan/model/transformer.h"
#include "plan/solve/transformer_graph.h"

namespace corro::plan {
namespace {

Model gpt() {
  return make_transformer(
      {.layers = 24, .hidden = 2048, .heads = 16, .vocabulary = 50000, .sequence = 1024});
}

StageCoster coster(const JobShape& shape) {
  const auto made = StageCoster::create(gpt(), shape, default_machine());
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *made;
}

TEST(StepCost, IsTheSlowestStageAndTheFillOfAll) {
  const StageCoster costs = coster({.pipeline = 4, .micro_batches = 8});
  std::vector<StageEstimate> stages(4);
  for (size_t s = 0; s < 4; ++s) stages[s].forward = static_cast<double>(s + 1);
  EXPECT_DOUBLE_EQ(costs.step_of(stages), 10 + 7 * 4);
  stages[0].sync = 3;
  stages[2].update = 2;
  EXPECT_DOUBLE_EQ(costs.step_of(stages), 10 + 7 * 4 + 3);
}

TEST(StepCost, ChunksDivideTheFill) {
  const StageCoster costs =
      coster({.pipeline = 4, .micro_batches = 8, .chunks = 2, .schedule = Schedule::kInterleaved});
  std::vector<StageEstimate> stages(4);
  for (auto& stage : stages) stage.forward = 2;
  EXPECT_DOUBLE_EQ(costs.step_of(stages), 3 * 1 + 2 + 7 * 2);
}

TEST(StepCost, HopsAddOncePerChunkWhileThePipelineFills) {
  const StageCoster costs =
      coster({.pipeline = 4, .micro_batches = 8, .chunks = 2, .schedule = Schedule::kInterleaved});
  EXPECT_EQ(costs.weights().slowest, 7);
  EXPECT_EQ(costs.weights().others, 0.5);
  const StageEstimate stage{.forward = 2, .hops = 1};
  EXPECT_DOUBLE_EQ(costs.fill(stage, false), 2 + 2 * 1);
  EXPECT_DOUBLE_EQ(costs.fill(stage, true), 2);  // It hands nothing on.
}

TEST(StepCost, ZeroBubbleHasNoFillOfTheLastStage) {
  const StageCoster costs =
      coster({.pipeline = 2, .micro_batches = 8, .schedule = Schedule::kZeroBubble});
  const std::vector<StageEstimate> stages(
      2, {.forward = 2, .backward = 4, .weight_part = 2, .hops = 1});
  EXPECT_DOUBLE_EQ(costs.step_of(stages), 8 * 7 + (7 - 2));
}

TEST(StepCost, HoldsMicroBatchesAsTheScheduleSays) {
  EXPECT_EQ(coster({.pipeline = 4, .micro_batches = 8}).in_flight(4), 4);
  EXPECT_EQ(coster({.pipeline = 4, .micro_batches = 2}).in_flight(4), 2);
  EXPECT_EQ(coster({.pipeline = 4, .micro_batches = 8, .schedule = Schedule::kGPipe}).in_flight(1),
            8);
}

TEST(StepCost, ZeroBubbleHoldsNoMoreThanThereAre) {
  for (const uint32_t micro_batches : {1U, 2U, 3U, 8U}) {
    const StageCoster costs =
        coster({.pipeline = 4, .micro_batches = micro_batches, .schedule = Schedule::kZeroBubble});
    for (uint32_t from_end = 1; from_end <= 4; ++from_end) {
      EXPECT_EQ(costs.in_flight(from_end), std::min(micro_batches, 5U));
    }
  }
}

TEST(StepCost, ZeroShardsStatesThenGradientsThenWeights) {
  const LayerRange all{0, 26};
  const auto memory = [&](uint32_t zero) {
    const StageCoster costs = coster({.data = 8, .zero = zero});
    return costs.estimate(all, 1, costs.recompute_blocks(all)).memory;
  };
  const MemoryUse none = memory(0);
  EXPECT_DOUBLE_EQ(none.optimizer, 6 * none.weights);  // 12 bytes beside 2.
  EXPECT_DOUBLE_EQ(memory(1).optimizer, none.optimizer / 8);
  EXPECT_DOUBLE_EQ(memory(1).gradients, none.gradients);
  EXPECT_DOUBLE_EQ(memory(2).gradients, none.gradients / 8);
  EXPECT_DOUBLE_EQ(memory(2).weights, none.weights);
  // Two blocks are gathered at a time; the embedding is larger.
  const double largest = 2 * (50000.0 + 1024) * 2048;
  EXPECT_DOUBLE_EQ(memory(3).weights, none.weights / 8 + 2 * largest);
}

TEST(StepCost, ATiedEmbeddingCountsOnceInOneStage) {
  const StageCoster costs = coster({});
  const double once = 24 * (12.0 * 2048 * 2048 + 13.0 * 2048) + (50000.0 + 1024) * 2048 + 2 * 2048;
  const MemoryUse memory = costs.estimate({0, 26}, 1, RecomputeCounts(3)).memory;
  EXPECT_NEAR(memory.weights, 2 * once, 1);
}

TEST(StepCost, WhatTheHeadKeptIsFreeWhenBlocksGoBackward) {
  const LayerRange all{0, 26};
  const auto full = static_cast<size_t>(Recompute::kFull);
  const auto transient = [&](Schedule schedule, bool also_the_head) {
    const StageCoster costs = coster({.schedule = schedule});
    RecomputeCounts counts = costs.recompute_blocks(all);
    if (also_the_head) std::swap(counts[2][0], counts[2][full]);
    return costs.estimate(all, 1, counts).memory.transient;
  };
  const StageCoster costs = coster({});
  const auto again = [&](uint32_t run) {
    return costs.layer(run).kept[0] - costs.layer(run).kept[full];
  };
  ASSERT_GT(costs.layer(2).kept[0], again(1));        // The logits are more than a block.
  const double logits = 50000.0 * 1024 * 2;           // Whose gradient is the head's widest,
  const double scores = 1.25 * 16 * 1024 * 1024 * 2;  // a block's is attention's.
  EXPECT_DOUBLE_EQ(transient(Schedule::kOneFOneB, false), logits);
  EXPECT_DOUBLE_EQ(transient(Schedule::kOneFOneB, true), again(2) + logits);
  EXPECT_DOUBLE_EQ(transient(Schedule::kZeroBubble, false), again(1) + scores);
}

TEST(StepCost, GradientsHaveTheirOwnDtype) {
  const LayerRange all{0, 26};
  const auto stage = [&](DType gradients) {
    return coster({.data = 8, .gradient_dtype = gradients}).estimate(all, 1, RecomputeCounts(3));
  };
  const StageEstimate usual = stage(DType::kF32);
  const StageEstimate half = stage(DType::kBF16);
  EXPECT_DOUBLE_EQ(usual.memory.gradients, 2 * usual.memory.weights);
  EXPECT_DOUBLE_EQ(half.memory.gradients, half.memory.weights);
  EXPECT_DOUBLE_EQ(half.memory.optimizer, usual.memory.optimizer);
  EXPECT_LT(half.reduce, usual.reduce);
}

TEST(StepCost, RecomputesNoMoreThanMemoryDemands) {
  const StageCoster costs = coster({.micro_batch = 8});
  const LayerRange all{0, 26};
  const auto period = [&](double limit) {
    const auto choice = costs.choose(all, 1, limit);
    if (!choice) return 1e9;
    const StageEstimate stage = costs.estimate(all, 1, choice->recompute);
    EXPECT_LE(stage.memory.sum(), limit);
    EXPECT_LE(choice->bound, stage.forward + stage.backward + stage.recompute + 1e-9);
    return stage.period();
  };
  double before = 1e10;
  for (double limit = 10e9; limit < 200e9; limit += 2e9) {
    EXPECT_LE(period(limit), before + 1e-12) << limit;
    before = period(limit);
  }
  EXPECT_FALSE(costs.choose(all, 1, 1e9).has_value());
  const StageEstimate free = costs.estimate(all, 1, costs.choose(all, 1, 1e12)->recompute);
  EXPECT_EQ(free.recompute, 0);
}

/// With a link to host memory of as many GB/s, and as many GB there for each device.
StageCoster offloading(double gigabytes_per_second, double gigabytes, uint32_t micro_batches = 1) {
  Machine machine = default_machine();
  machine.host.to_host_memory.bandwidth = gigabytes_per_second * 1e9;
  machine.host.host_memory = gigabytes * 1e9;
  return *StageCoster::create(gpt(), {.micro_batch = 8, .micro_batches = micro_batches}, machine);
}

TEST(StepCost, MovesActivationsToHostsWhereThatTakesLessThanRecomputing) {
  const LayerRange all{0, 26};
  const StageCoster fast = offloading(1000, 1000);
  for (double limit = 30e9; limit < 120e9; limit += 5e9) {
    const auto kept = fast.choose(all, 1, limit);
    const auto moved = fast.choose(all, 1, limit, true);
    if (!kept) continue;
    ASSERT_TRUE(moved) << limit;
    EXPECT_LE(moved->added, kept->added) << limit;
    const StageEstimate stage = fast.estimate(all, 1, moved->recompute);
    EXPECT_LE(stage.memory.sum(), limit);
    EXPECT_LE(stage.host, fast.host_limit());
    EXPECT_NEAR(stage.offload + stage.recompute, moved->added, 0.01 * moved->added + 1e-9);
    EXPECT_TRUE(kept->added == 0 || moved->recompute[1].back() > 0) << limit;
  }
  // A link that is slow, or hosts that are full: then layers compute again, as before.
  const StageCoster slow = offloading(0.001, 1000);
  EXPECT_EQ(slow.choose(all, 1, 50e9, true)->recompute[1].back(), 0U);
  const StageCoster full = offloading(1000, 0.001);
  EXPECT_EQ(full.choose(all, 1, 50e9, true)->recompute[1].back(), 0U);
  EXPECT_FALSE(offloading(1000, 0).can_offload());
}

/// Seconds of recomputing and moving, if so many of the blocks move: what choose() has to find the
/// best of. As the planner had it first: one number after the other.
double added_by(const StageCoster& costs, const LayerRange& layers, uint32_t from_end, double limit,
                uint32_t moved) {
  const double flight = costs.in_flight(from_end);
  const double room = limit - costs.fixed_memory(layers).sum();
  double work = 0;
  double all = 0;
  double transient = 0;
  double again = 0;
  double kept_after = 0;  // Of the runs after this one, all and at least.
  double least_after = 0;
  std::vector<LayerChoices> choices;
  for (auto run = static_cast<uint32_t>(costs.runs()); run-- > 0;) {
    const LayerCost& cost = costs.layer(run);
    const uint32_t all_of_run = costs.count(layers, run);
    const uint32_t n = all_of_run - (run == 1 ? moved : 0);
    if (all_of_run == 0) continue;
    work += all_of_run * (cost.forward + cost.backward);
    const double least = *std::min_element(cost.kept.begin(), cost.kept.begin() + 3);
    const double two = run == 1 && moved > 0 ? 2 * cost.kept[0] : 0;
    transient = std::max(transient, cost.gradient + two - kept_after);
    again = std::max(again,
                     cost.gradient + std::max(two, n > 0 ? cost.kept[0] - least : 0) - least_after);
    if (n > 0) choices.push_back({.count = n, .options = {}});
    for (size_t how = 0; how < 3 && n > 0; ++how) {
      choices.back().options.push_back({cost.recompute[how], cost.kept[how] * flight});
    }
    kept_after += n * cost.kept[0];
    least_after += n * least;
    all += n * cost.kept[0] * flight;
  }
  const double shown = exposed(moved * costs.offload_seconds(1), work);
  if (all + transient <= room) return shown;
  const auto best = choose_quickly(choices, room - again);
  return best ? shown + best->time : 1e9;
}

TEST(StepCost, ChoosesAsIfEveryNumberOfMovedLayersWereTried) {
  RandomCosts random(41);
  int moving = 0;
  int recomputing = 0;
  int impossible = 0;
  for (int i = 0; i < 600; ++i) {
    const StageCoster costs = offloading(1 + 30 * random.next(), 1 + 20 * random.next(), 8);
    const LayerRange layers{random.upto(2), 8 + random.upto(19)};
    const uint32_t from_end = 1 + random.upto(3);
    const double limit = costs.fixed_memory(layers).sum() + 1e9 * random.next() * random.next();
    const double each = costs.layer(1).kept[0] * costs.in_flight(from_end);
    const auto most = static_cast<uint32_t>(
        std::min<double>(costs.count(layers, 1), std::floor(costs.host_limit() / each)));
    double least = 1e9;
    for (uint32_t moved = 0; moved <= most; ++moved) {
      least = std::min(least, added_by(costs, layers, from_end, limit, moved));
    }
    const auto choice = costs.choose(layers, from_end, limit, true);
    EXPECT_EQ(choice.has_value(), least < 1e9) << i;
    if (!choice) {
      ++impossible;
      continue;
    }
    EXPECT_NEAR(choice->added, least, 1e-12 + 1e-9 * least) << i;
    const StageEstimate stage = costs.estimate(layers, from_end, choice->recompute);
    EXPECT_NEAR(stage.recompute + stage.offload, choice->added, 1e-9) << i;
    EXPECT_LE(choice->bound, stage.forward + stage.backward + choice->added + 1e-9) << i;
    EXPECT_LE(stage.memory.sum(), limit * (1 + 1e-9)) << i;
    EXPECT_LE(stage.host, costs.host_limit()) << i;
    moving += choice->recompute[1].back() > 0 ? 1 : 0;
    recomputing += stage.recompute > 0 ? 1 : 0;
  }
  EXPECT_GT(moving, 50);
  EXPECT_GT(recomputing, 50);
  EXPECT_GT(impossible, 10);
}

TEST(StepCost, ComputingHidesWhatMovesUpToWhatTheLinkCarries) {
  const LayerRange all{0, 26};
  RecomputeCounts counts(3);
  counts[1].back() = 24;
  const auto stage = [&](double speed) { return offloading(speed, 1000).estimate(all, 1, counts); };
  const StageCoster costs = offloading(100, 1000);
  const double moving = 24 * costs.offload_seconds(1);
  const StageEstimate fast = stage(1000);
  EXPECT_NEAR(fast.offload, kInterference * moving / 10, 1e-9);
  const StageEstimate slow = stage(1);
  EXPECT_NEAR(slow.offload, 100 * moving - (1 - kInterference) * (slow.forward + slow.backward),
              1e-6);
  EXPECT_DOUBLE_EQ(slow.period(), slow.forward + slow.backward + slow.offload);
  EXPECT_EQ(slow.memory.activations, 0);
  EXPECT_DOUBLE_EQ(slow.memory.transient, 2 * costs.layer(1).kept[0] + costs.layer(1).gradient);
  EXPECT_DOUBLE_EQ(slow.host, 24 * costs.layer(1).kept[0]);
}

TEST(StepCost, StatesMoveToHostsOneAfterTheOther) {
  const LayerRange all{0, 26};
  Machine machine = default_machine();
  machine.host.to_host_memory.bandwidth = 25e9;
  const auto stage = [&](Offload offload) {
    return StageCoster::create(gpt(), {.micro_batch = 8, .offload = offload}, machine)
        ->estimate(all, 1, RecomputeCounts(3));
  };
  const StageEstimate none = stage(Offload::kOff);
  const StageEstimate optimizer = stage(Offload::kOptimizer);
  const StageEstimate gradients = stage(Offload::kGradients);
  const StageEstimate weights = stage(Offload::kWeights);
  EXPECT_EQ(none.host, 0);
  EXPECT_EQ(none.offload, 0);
  EXPECT_DOUBLE_EQ(optimizer.host, none.memory.optimizer);
  EXPECT_DOUBLE_EQ(gradients.host, none.memory.optimizer + none.memory.gradients);
  EXPECT_DOUBLE_EQ(weights.host, gradients.host + none.memory.weights);
  EXPECT_EQ(optimizer.memory.optimizer, 0);
  // Two layers are on their way; the embedding is the largest.
  const double largest = 2 * (50000.0 + 1024) * 2048;
  EXPECT_DOUBLE_EQ(gradients.memory.gradients, 4 * largest);
  EXPECT_DOUBLE_EQ(weights.memory.weights, 2 * largest);
  // Gradients leave with every micro-batch; weights come for forward and for backward. Computing
  // hides both up to its own length.
  const double lane = 25e9;
  const double work = none.forward + none.backward;
  EXPECT_EQ(optimizer.offload, 0);
  EXPECT_NEAR(gradients.offload, exposed(none.memory.gradients / lane, work), 1e-12);
  EXPECT_NEAR(weights.offload,
              exposed((none.memory.gradients + 2 * none.memory.weights) / lane, work), 1e-12);
  // What has moved needs not move at the end of the step.
  EXPECT_NEAR(optimizer.update - gradients.update, none.memory.gradients / lane, 1e-9);
  EXPECT_NEAR(gradients.update - weights.update, none.memory.weights / lane, 1e-9);
}

TEST(StepCost, RanksThatShareWeightsCannotMoveThem) {
  for (uint32_t zero = 0; zero <= 3; ++zero) {
    const JobShape shape{.data = 4, .zero = zero};
    EXPECT_TRUE(shape.can_offload(Offload::kOptimizer));
    EXPECT_EQ(shape.can_offload(Offload::kGradients), zero >= 2);
    EXPECT_EQ(shape.can_offload(Offload::kWeights), zero == 3);
  }
  EXPECT_TRUE(JobShape{}.can_offload(Offload::kWeights));
}

TEST(StepCost, ActivationsShareTheLinkWithGradientsAndWeights) {
  const LayerRange all{0, 26};
  Machine machine = default_machine();
  machine.host.to_host_memory.bandwidth = 20e9;
  machine.host.host_memory = 8e12;
  RandomCosts random(43);
  int moving = 0;
  for (int i = 0; i < 100; ++i) {
    machine.host.to_host_memory.bandwidth = 2e9 * (1 + random.next() * random.next());
    const StageCoster costs = *StageCoster::create(
        gpt(), {.micro_batch = 8, .offload = static_cast<Offload>(random.upto(4))}, machine);
    const double limit = costs.fixed_memory(all).sum() + 5e9 * random.next();
    const auto choice = costs.choose(all, 1, limit, true);
    if (!choice) continue;
    const StageEstimate stage = costs.estimate(all, 1, choice->recompute);
    const double states = exposed(costs.states_seconds(all), stage.forward + stage.backward);
    EXPECT_NEAR(stage.recompute + stage.offload - states, choice->added, 1e-9) << i;
    EXPECT_LE(stage.host, costs.host_limit());
    moving += choice->recompute[1].back() > 0 ? 1 : 0;
  }
  EXPECT_GT(moving, 5);
}

TEST(StepCost, GradientsHideBehindBackward) {
  const LayerRange all{0, 26};
  JobShape shape{.tensor = 8, .data = 8, .micro_batch = 8};
  const auto sync = [&] {
    const StageCoster costs = coster(shape);
    return costs.estimate(all, 1, RecomputeCounts(3)).sync;
  };
  const double hidden = sync();
  shape.overlap = false;
  // The last bucket has nothing to hide behind, and what is hidden slows by 0.15 of itself.
  EXPECT_GT(hidden, 0.15 * sync());
  EXPECT_LT(hidden, 0.5 * sync());
}

TEST(StepCost, NoOtherBucketTakesLess) {
  const LayerRange all{0, 26};
  for (const uint32_t micro_batch : {1U, 8U}) {
    for (const uint32_t data : {2U, 64U}) {
      JobShape shape{.tensor = 2, .data = data, .micro_batch = micro_batch};
      const auto stage = [&] { return coster(shape).estimate(all, 1, RecomputeCounts(3)); };
      const StageEstimate best = stage();
      EXPECT_GT(best.bucket, 0);
      EXPECT_GE(best.reduce, best.sync);
      const double gradients = best.memory.gradients;
      for (double buckets = 1; buckets < 3000; buckets = std::ceil(1.1 * buckets)) {
        shape.bucket = gradients / buckets;
        EXPECT_GE(stage().sync, best.sync * (1 - 1e-9)) << buckets << " buckets";
      }
      shape.bucket = best.bucket * (1 + 1e-9);
      EXPECT_NEAR(stage().sync, best.sync, 1e-9);
      EXPECT_NEAR(stage().starts, best.starts, 1e-9);
    }
  }
}

TEST(StepCost, BucketsAreLargerWhereTheyTakeLongerToStart) {
  Machine machine = default_machine();
  const auto bucket = [&] {
    return StageCoster::create(gpt(), {.tensor = 8, .data = 8, .micro_batch = 8}, machine)
        ->estimate({0, 26}, 1, RecomputeCounts(3))
        .bucket;
  };
  const double before = bucket();
  machine.calibration.collective_seconds *= 4;
  EXPECT_GT(bucket(), 1.5 * before);
}

TEST(StepCost, SaysWhichLayerCannotBeCut) {
  Model model = gpt();
  model.types[1].experts = 6;
  const auto made = StageCoster::create(model, {.expert = 4, .data = 4}, default_machine());
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("\"block\""), std::string::npos);
}

}  // namespace
}  // namespace corro::plan
