#include "plan/search/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "plan/cost/runs.h"
#include "plan/model/transformer.h"
#include "plan/search/shapes.h"
#include "plan/search/stage_search.h"
#include "plan/solve/transformer_graph.h"

namespace corro::plan {
namespace {

using testing::HasSubstr;

Cluster cluster_of(uint32_t hosts, uint32_t devices = 8) {
  const Machine machine = default_machine();
  Cluster cluster;
  cluster.types = {machine.device};
  cluster.types[0].price = 2;
  cluster.hosts = {machine.host};
  cluster.hosts[0].count = hosts;
  cluster.hosts[0].devices = devices;
  return cluster;
}

/// About 1.3 billion parameters.
Request small() {
  return {.model = make_transformer(
              {.layers = 12, .hidden = 3072, .heads = 24, .vocabulary = 50000, .sequence = 1024}),
          .cluster = cluster_of(2, 2),
          .global_batch = 16,
          .most_exact = 100000};
}

Request gpt3() {
  return {.model = make_transformer(
              {.layers = 96, .hidden = 12288, .heads = 96, .vocabulary = 51200, .sequence = 2048}),
          .cluster = cluster_of(128),
          .global_batch = 1536};
}

Decision decide(const Request& request, const Policies& policies = {}) {
  auto decision = make_plan(request, policies);
  EXPECT_TRUE(decision.ok()) << decision.status().message();
  return *std::move(decision);
}

double step_of(const Request& request) { return decide(request).best.step; }

/// Solves every shape, holds its bounds to what was found, since what is dropped for its bound must
/// not be better, and calls visit(search, candidate) for it. Returns the least step.
template <typename Visit>
double solve_all(const Request& request, Visit&& visit) {
  const auto pools = pools_of(request);
  StageSearch search(request, pools);
  double best = kInfeasible;
  for (const JobShape& shape : shapes_of(request, pools)) {
    const auto solved = search.solve(shape);
    if (!solved.best) continue;
    best = std::min(best, solved.best->step);
    EXPECT_LE(search.quick_bound(shape), solved.best->step * (1 + 1e-9));
    EXPECT_LE(search.fractional_bound(shape), solved.best->step * (1 + 1e-9));
    visit(search, *solved.best);
  }
  return best;
}

TEST(Planner, FindsTheBestOfAllShapes) {
  const Request request = small();
  const double best = solve_all(request, [](StageSearch&, const Candidate&) {});
  const Decision decision = decide(request);
  EXPECT_NEAR(decision.best.step, best, 1e-9);
  EXPECT_LT(decision.exact, decision.shapes);
  EXPECT_LE(decision.bound, decision.best.step);
  EXPECT_LE(decision.gap, 0.01);
}

TEST(Planner, PlansGpt3OnAThousandDevicesWithProof) {
  const Decision decision = decide(gpt3());
  EXPECT_LE(decision.gap, 0.01);
  EXPECT_LE(decision.exact, 128U);
  EXPECT_GT(decision.eta, 0.4);
  EXPECT_LE(static_cast<double>(decision.memory_proof), decision.memory_limit);
  EXPECT_NEAR(decision.best.terms.sum(), decision.best.step, 1e-9);
  ASSERT_TRUE(decision.runner_up.has_value());
  EXPECT_GE(decision.runner_up->step, decision.best.step);
  EXPECT_THAT(decision.why, HasSubstr("Against tp"));
  EXPECT_TRUE(graph::check(decision.graph).ok());
  uint32_t layer = 0;
  for (const PlannedStage& stage : decision.best.stages) {
    EXPECT_EQ(stage.layers.begin, layer);
    layer = stage.layers.end;
  }
  EXPECT_EQ(layer, 98U);
}

TEST(Planner, SaysTheSameTwice) {
  const Decision one = decide(small());
  const Decision two = decide(small());
  EXPECT_EQ(one.best.shape, two.best.shape);
  EXPECT_EQ(one.best.step, two.best.step);
  EXPECT_EQ(graph::hash_of(one.graph), graph::hash_of(two.graph));
}

TEST(Planner, MoreOfAnythingIsNeverSlower) {
  const double step = step_of(small());
  Request more = small();
  more.cluster.types[0].memory *= 2;
  EXPECT_LE(step_of(more), step * (1 + 1e-9));
  more = small();
  more.cluster.hosts[0].network.bandwidth *= 2;
  more.cluster.hosts[0].link.bandwidth *= 2;
  EXPECT_LE(step_of(more), step * (1 + 1e-9));
  more = small();
  more.cluster.hosts[0].count *= 2;
  EXPECT_LE(step_of(more), step * (1 + 1e-9));
}

TEST(Planner, ALostHostIsPlannedAround) {
  Request request = gpt3();
  const double before = step_of(request);
  request.cluster = request.cluster.without_host(3);
  const Decision after = decide(request);
  EXPECT_GE(after.best.step, before);
  EXPECT_LE(after.best.step, 1.2 * before);
  EXPECT_LE(after.best.shape.ranks(), 1016U);
}

TEST(Planner, KeepsPins) {
  Request request = small();
  request.pins = {.tensor = 2, .pipeline = 2, .zero = 1, .recompute = Recompute::kFull};
  const Decision decision = decide(request);
  EXPECT_EQ(decision.best.shape.tensor, 2U);
  EXPECT_EQ(decision.best.shape.pipeline, 2U);
  EXPECT_EQ(decision.best.shape.data, 1U);
  EXPECT_EQ(decision.best.stages[0].recompute[1][static_cast<size_t>(Recompute::kFull)],
            decision.best.stages[0].layers.end - 1);
}

// A stage needs room for a layer's gathered weights once, however many layers it has.
TEST(Planner, CountsGatheredWeightsOnceInTheBound) {
  Request request = small();
  request.pins = {.tensor = 1, .zero = 3};
  uint32_t solved_shapes = 0;
  for (const double limit : {8e9, 10e9, 12e9}) {
    request.memory_limit = limit;
    const auto pools = pools_of(request);
    StageSearch search(request, pools);
    for (const JobShape& shape : shapes_of(request, pools)) {
      const auto solved = search.solve(shape);
      if (!solved.best) continue;
      ++solved_shapes;
      EXPECT_LE(search.fractional_bound(shape), solved.best->step * (1 + 1e-9)) << limit;
    }
  }
  EXPECT_GT(solved_shapes, 0U);
}

/// Memory is short, and hosts have a link to theirs.
Request short_of_memory(double link) {
  Request request = small();
  request.memory_limit = 14e9;
  request.pins = {.tensor = 1, .data = 1, .pipeline = 4, .micro_batch = 4};
  request.cluster.hosts[0].to_host_memory = {link, 0};
  request.cluster.hosts[0].host_memory = 1e12;
  return request;
}

uint32_t moved_layers(const Decision& decision) {
  uint32_t sum = 0;
  for (const PlannedStage& stage : decision.best.stages) {
    for (const auto& counts : stage.recompute) sum += counts.back();
  }
  return sum;
}

TEST(Planner, MovesActivationsToHostsThatAreNearAndProvesIt) {
  for (const double link : {1e9, 10e9, 100e9}) {
    Request request = short_of_memory(link);
    request.most_exact = 100000;
    const auto pools = pools_of(request);
    StageSearch search(request, pools);
    double best = kInfeasible;
    for (const JobShape& shape : shapes_of(request, pools)) {
      const auto solved = search.solve(shape);
      if (!solved.best) continue;
      best = std::min(best, solved.best->step);
      EXPECT_LE(search.fractional_bound(shape), solved.best->step * (1 + 1e-9)) << link;
    }
    const Decision decision = decide(request);
    EXPECT_NEAR(decision.best.step, best, 1e-9);
    EXPECT_LE(decision.bound, decision.best.step);
    EXPECT_NEAR(decision.best.terms.sum(), decision.best.step, 1e-9);
    request.pins.offload = Offload::kOff;
    const Decision without = decide(request);
    EXPECT_LE(decision.best.step, without.best.step * (1 + 1e-9));
    EXPECT_EQ(moved_layers(without), 0U);
    EXPECT_TRUE(link < 50e9 || moved_layers(decision) > 0) << link;
  }
}

/// Four devices with links, memories and limits at random.
Request at_random(RandomCosts& random) {
  Request request{.model = make_transformer({.layers = 3 + random.upto(6),
                                             .hidden = 2048,
                                             .heads = 16,
                                             .vocabulary = 30000,
                                             .sequence = 1024}),
                  .cluster = cluster_of(2, 2),
                  .global_batch = 8,
                  .most_exact = 100000};
  HostGroup& hosts = request.cluster.hosts[0];
  hosts.network.bandwidth = 1e9 * (1 + 10 * random.next());
  hosts.to_host_memory.bandwidth = 1e9 * (1 + 10 * random.next());
  hosts.host_memory = random.upto(2) * 2e9 * (1 + random.next());
  request.memory_limit = 3e9 + 1e9 * random.next();
  return request;
}

TEST(Planner, FindsTheBestOfAllShapesOnMachinesAtRandom) {
  RandomCosts random(61);
  int planned = 0;
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const Request request = at_random(random);
    const double best = solve_all(request, [&](StageSearch& search, const Candidate& found) {
      JobShape family = found.shape;
      family.zero = 0;
      family.offload = Offload::kOff;
      EXPECT_LE(search.family_bound(family), search.quick_bound(found.shape) * (1 + 1e-9));
      for (const PlannedStage& stage : found.stages) {
        EXPECT_LE(stage.estimate.memory.sum(), request.memory_limit * (1 + 1e-9));
        EXPECT_LE(stage.estimate.host, search.coster(found.shape, 0)->host_limit());
      }
    });
    const auto decision = make_plan(request);
    EXPECT_EQ(decision.ok(), best < kInfeasible) << i;
    if (!decision.ok()) continue;
    ++planned;
    EXPECT_NEAR(decision->best.step, best, 1e-9) << i;
    EXPECT_LE(decision->bound, best * (1 + 1e-9)) << i;
    EXPECT_LE(decision->bounded, decision->shapes) << i;
    EXPECT_LE(decision->exact, decision->bounded) << i;
  }
  EXPECT_GT(planned, 6);
}

TEST(Planner, ProvesWhatDevicesOfTwoKindsCanDo) {
  RandomCosts random(67);
  int planned = 0;
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    Request request = at_random(random);
    DeviceType other = request.cluster.types[0];
    other.name = "other";
    other.memory = request.memory_limit * (0.5 + 0.05 * random.next());
    for (double& peak : other.peak) peak *= 0.3 + 0.1 * random.next();
    request.cluster.types.push_back(other);
    request.cluster.hosts.push_back(request.cluster.hosts[0]);
    request.cluster.hosts[1].type = 1;
    const double best = solve_all(request, [](StageSearch&, const Candidate&) {});
    const auto decision = make_plan(request);
    EXPECT_EQ(decision.ok(), best < kInfeasible);
    if (!decision.ok()) continue;
    ++planned;
    EXPECT_NEAR(decision->best.step, best, 1e-9);
    EXPECT_LE(decision->bound, best * (1 + 1e-9));
  }
  EXPECT_GT(planned, 6);
}

// What a plan takes is asking for bounds and costing stages: few of 460 000 shapes need either.
TEST(Planner, LooksCloselyAtFewShapesAfterALostHost) {
  Request request = gpt3();
  request.cluster.hosts[0].to_host_memory = {.bandwidth = 25e9};
  request.cluster.hosts[0].host_memory = 2e12;
  for (const bool lost : {false, true}) {
    if (lost) request.cluster = request.cluster.without_host(3);
    const Decision decision = decide(request);
    EXPECT_GT(decision.shapes, 400000U);
    EXPECT_LT(decision.bounded, 5000U) << lost;
    EXPECT_LE(decision.exact, 128U) << lost;
    EXPECT_LT(decision.costed, 60000U) << lost;
    EXPECT_LE(decision.gap, 0.01) << lost;
  }
}

TEST(Planner, ShapesAreThoseOfAllFamilies) {
  const Request request = gpt3();
  const auto pools = pools_of(request);
  const ShapeSpace space(request, pools);
  size_t members = 0;
  for (const JobShape& family : space.families()) {
    for (const JobShape& shape : space.members(family)) {
      ++members;
      EXPECT_EQ(shape.ranks(), family.ranks());
      EXPECT_EQ(shape.micro_batch, family.micro_batch);
      EXPECT_EQ(shape.chunks, family.chunks);
    }
  }
  EXPECT_EQ(members, space.size());
}

// One device has 1.5 billion parameters: 3 GB of weights, 6 of gradients, 18 of optimizer state.
TEST(Planner, MovesStatesToHostsAsFarAsMemoryDemands) {
  Request request = short_of_memory(25e9);
  request.pins = {.tensor = 1, .data = 1, .pipeline = 1};
  const std::pair<double, Offload> least_of[] = {
      {12e9, Offload::kOptimizer}, {8e9, Offload::kGradients}, {3.5e9, Offload::kWeights}};
  for (const auto& [limit, least] : least_of) {
    request.memory_limit = limit;
    request.pins.offload.reset();
    const Decision free = decide(request);
    EXPECT_GE(free.best.shape.offload, least) << limit;
    EXPECT_LE(static_cast<double>(free.memory_proof), limit);
    EXPECT_NEAR(free.best.terms.sum(), free.best.step, 1e-9);
    for (int what = 0; what < kOffloadCount; ++what) {
      request.pins.offload = static_cast<Offload>(what);
      const auto pinned = make_plan(request);
      EXPECT_EQ(pinned.ok(), *request.pins.offload >= least) << limit << ' ' << what;
      if (!pinned.ok()) continue;
      EXPECT_EQ(pinned->best.shape.offload, *request.pins.offload);
      EXPECT_GE(pinned->best.step, free.bound * (1 - 1e-9));
    }
  }
}

TEST(Planner, HostMemoryLimitsWhatMovesThere) {
  Request request = short_of_memory(25e9);
  request.pins = {.tensor = 1, .pipeline = 1, .offload = Offload::kOptimizer};
  request.memory_limit = 0;
  const Decision decision = decide(request);
  const double held = decision.best.stages[0].estimate.host;
  EXPECT_GT(held, 0);
  request.pins.zero = decision.best.shape.zero;
  request.pins.data = decision.best.shape.data;
  request.cluster.hosts[0].host_memory = 2 * 1.01 * held;  // Two devices in a host.
  EXPECT_TRUE(make_plan(request).ok());
  request.cluster.hosts[0].host_memory = 2 * 0.1 * held;
  const auto refused = make_plan(request);
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("too much in host memory for each device"));
  request.cluster.hosts[0].host_memory = 0;  // Not known: as much as is needed.
  EXPECT_TRUE(make_plan(request).ok());
}

TEST(Planner, MegatronMovesTheOptimizerAlone) {
  Request request = short_of_memory(25e9);
  request.trainer = Trainer::kMegatron;
  const auto pools = pools_of(request);
  for (const JobShape& shape : shapes_of(request, pools)) {
    EXPECT_LE(shape.offload, Offload::kOptimizer);
  }
}

TEST(Planner, MegatronsRanksHaveAsManySamplesEach) {
  Request request = small();
  request.cluster = cluster_of(7, 2);
  request.global_batch = 64;
  request.pins = {.tensor = 1, .pipeline = 1};
  EXPECT_NE(64 % decide(request).best.shape.data, 0U);  // corro's may have one less.
  request.trainer = Trainer::kMegatron;
  EXPECT_EQ(64 % decide(request).best.shape.data, 0U);
  request.pins.data = 14;
  EXPECT_EQ(make_plan(request).status().code(), Code::kInvalidArgument);
}

TEST(Planner, OffloadingActivationsByPinNeedsHostMemory) {
  Request request = short_of_memory(100e9);
  request.pins.recompute = Recompute::kOffload;
  EXPECT_EQ(moved_layers(decide(request)), 12U);
  request.cluster.hosts[0].host_memory = 0;
  EXPECT_THAT(make_plan(request).status().message(),
              HasSubstr("pins: recompute offload needs to_host_memory and host_memory"));
}

TEST(Planner, GradientsAreF32OrWhatActivationsAre) {
  Request request = small();
  const double usual = step_of(request);
  request.pins.gradient_dtype = DType::kF16;
  EXPECT_EQ(make_plan(request).status().message(),
            "pins: gradient_dtype must be f32 or bf16, which activations have");
  request.pins.gradient_dtype = DType::kBF16;
  const Decision half = decide(request);
  EXPECT_EQ(half.best.shape.gradient_dtype, DType::kBF16);
  EXPECT_LT(half.best.step, usual);
}

TEST(Planner, KeepsAPinnedSchedule) {
  for (const Schedule schedule :
       {Schedule::kOneFOneB, Schedule::kZeroBubble, Schedule::kGPipe, Schedule::kInterleaved}) {
    Request request = small();
    request.pins = {.tensor = 1, .pipeline = 2, .schedule = schedule};
    EXPECT_EQ(decide(request).best.shape.schedule, schedule);
  }
}

TEST(Planner, AModelWithoutExpertsIsNotCutByThem) {
  Request request = small();
  request.pins.expert = 4;
  EXPECT_EQ(make_plan(request).status().code(), Code::kInvalidArgument);
}

TEST(Planner, RefusesPinsThatNoShapeHas) {
  Request request = small();
  request.pins = {.tensor = 2, .pipeline = 8};
  const auto decision = make_plan(request);
  EXPECT_EQ(decision.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(decision.status().message(),
              HasSubstr("pins: tp 2, pp 8 need 16 devices, and there are 4"));
}

TEST(Planner, SaysByHowMuchItDoesNotFitAndWhatWouldHelp) {
  Request request = gpt3();
  request.cluster = cluster_of(1);
  const auto decision = make_plan(request);
  EXPECT_EQ(decision.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(decision.status().message(), HasSubstr("GiB too much on the fullest device"));
  EXPECT_THAT(decision.status().message(), HasSubstr("48 such devices, or offloading"));
}

TEST(Planner, SaysWhichStageLacksHowMuchWhereOnlyStagesDoNotFit) {
  Request request = small();
  request.pins = {.tensor = 1, .data = 1, .pipeline = 4, .recompute = Recompute::kNone};
  request.memory_limit = 6e9;  // Enough if layers were recomputed.
  const std::string message(make_plan(request).status().message());
  EXPECT_THAT(message, testing::ContainsRegex("of each device: stage [0-3] lacks [0-9.]+ [MG]iB"));
  EXPECT_THAT(message, HasSubstr("recompute none; "));
}

TEST(Planner, APinOfSequenceParallelismIsKeptOrRefused) {
  Request request = small();
  request.pins = {.sequence_parallel = true};
  EXPECT_TRUE(decide(request).best.shape.sequence_parallel);
  request.pins = {.tensor = 1, .sequence_parallel = true};
  const auto decision = make_plan(request);
  EXPECT_EQ(decision.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(decision.status().message(),
              HasSubstr("pins: tp 1, sequence_parallel on leave no way"));
}

TEST(Planner, MegatronsRanksHaveAsManyHeadsAndAsLongChunks) {
  Request request = small();
  request.trainer = Trainer::kMegatron;
  request.cluster = cluster_of(2, 5);
  request.pins = {.tensor = 5};  // Of 24 heads.
  EXPECT_THAT(make_plan(request).status().message(), HasSubstr("for Megatron-LM"));
  request.pins = {.tensor = 1, .context = 5};  // Of 1 024 tokens.
  EXPECT_THAT(make_plan(request).status().message(), HasSubstr("for Megatron-LM"));
  request.pins = {.tensor = 1, .context = 4, .data = 2};
  EXPECT_TRUE(make_plan(request).ok());
  request.trainer = Trainer::kCorro;
  request.pins = {.tensor = 5};
  EXPECT_TRUE(make_plan(request).ok());
}

TEST(Planner, AMachineAloneIsNotMultiplied) {
  Request request = gpt3();
  request.cluster = cluster_of(1);
  request.cluster.hosts[0].network = {};
  const auto decision = make_plan(request);
  EXPECT_EQ(decision.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(decision.status().message(),
              testing::AllOf(HasSubstr("does not fit"), testing::Not(HasSubstr("such devices"))));
}

TEST(Planner, WhatItSaysWouldHelpDoes) {
  for (const double limit : {2e9, 6e9, 11e9}) {
    Request request = small();
    request.most_exact = 128;
    request.pins.tensor = 1;
    request.memory_limit = limit;
    const auto failed = make_plan(request);
    if (failed.ok()) continue;
    const std::string message(failed.status().message());
    EXPECT_EQ(message.find("-"), message.find("micro-batch") + 5) << message;  // No number below 0.
    unsigned devices = 0;
    const size_t at = message.rfind("; ");
    ASSERT_EQ(std::sscanf(message.c_str() + at, "; %u such devices", &devices), 1) << message;
    Request more = request;
    more.cluster.hosts[0].count = devices / 2;
    EXPECT_TRUE(make_plan(more).ok()) << message;
    double gib = 0;
    const size_t amount = message.find("a limit of ");
    if (amount == std::string::npos) continue;
    ASSERT_EQ(std::sscanf(message.c_str() + amount, "a limit of %lf GiB", &gib), 1) << message;
    request.memory_limit = (gib + 0.1) * (1U << 30U);
    EXPECT_TRUE(make_plan(request).ok()) << message;
  }
}

// Few pins leave the search space (docs/planner.md); with all others the bound has to hold.
TEST(Planner, NoPinBeatsTheBound) {
  for (const double network : {1e6, 1e9, 200e9}) {
    Request request = small();
    request.most_exact = 128;
    request.cluster.hosts[0].network.bandwidth = network;
    request.cluster.hosts[0].to_host_memory = {.bandwidth = 25e9};
    request.memory_limit = 30e9;
    const double bound = decide(request).bound;
    const auto check = [&](const Pins& pins) {
      request.pins = pins;
      const auto pinned = make_plan(request);
      if (!pinned.ok()) return;
      EXPECT_GE(pinned->best.step, bound * (1 - 1e-9)) << network;
    };
    for (uint32_t zero = 0; zero <= 3; ++zero) check({.zero = zero});
    for (const uint32_t degree : {1U, 2U, 4U}) {
      check({.tensor = degree});
      check({.data = degree});
      check({.pipeline = degree});
      check({.data = 1, .pipeline = degree});
      check({.pipeline = degree, .zero = 2});
      check({.micro_batch = degree});
    }
    for (int what = 0; what < kOffloadCount; ++what) check({.offload = static_cast<Offload>(what)});
    check({.recompute = Recompute::kFull});
  }
}

TEST(Planner, SaysWhatCannotBePlannedTogether) {
  Request request = small();
  for (const double more : {1.1, 1.2, 1.3}) {
    request.cluster.hosts.push_back(request.cluster.hosts[0]);
    request.cluster.hosts.back().network.bandwidth *= more;
  }
  EXPECT_THAT(make_plan(request).status().message(), testing::HasSubstr("has 4 kinds of hosts"));
  request = small();
  request.model.layers[1].count = 2000;
  EXPECT_THAT(make_plan(request).status().message(),
              testing::HasSubstr("layers, of which at most"));
}

TEST(Planner, CheapMayBeSlow) {
  Request request = small();
  const Decision fast = decide(request);
  request.objective = Objective::kCost;
  const Decision cheap = decide(request);
  EXPECT_LE(cheap.best.price, fast.best.price * (1 + 1e-9));
  EXPECT_GE(cheap.best.step, fast.best.step * (1 - 1e-9));
  request.cluster.types[0].price = 0;
  EXPECT_THAT(make_plan(request).status().message(), HasSubstr("objective: cost needs prices"));
}

TEST(Planner, UsesDevicesOfTwoKinds) {
  Request request = small();
  const double alone = step_of(request);
  DeviceType slow = request.cluster.types[0];
  slow.name = "slow";
  for (double& peak : slow.peak) peak /= 2;
  request.cluster.types.push_back(slow);
  HostGroup group = request.cluster.hosts[0];
  group.type = 1;
  request.cluster.hosts.push_back(group);
  const Decision both = decide(request);
  EXPECT_LT(both.best.step, alone);
  // The slower stages hold fewer layers.
  uint32_t layers[2] = {0, 0};
  for (const PlannedStage& stage : both.best.stages) {
    layers[stage.type] += stage.layers.end - stage.layers.begin;
  }
  EXPECT_GT(layers[0], layers[1]);
  EXPECT_GT(layers[1], 0U);
  EXPECT_LE(both.gap, 0.1);
}

TEST(Planner, AsksPoliciesAndTakesWhatIsBetter) {
  Request request = small();
  request.pins = {.tensor = 1, .data = 1, .pipeline = 2};
  uint32_t asked = 0;
  const CutPolicy third = [&](const CutQuestion& question) {
    ++asked;
    EXPECT_EQ(question.seconds.size(), 14U);
    return std::vector<uint32_t>{0, 4};
  };
  const CutPolicy nonsense = [](const CutQuestion&) { return std::vector<uint32_t>{3, 1}; };
  const double own = step_of(request);
  const Decision decision = decide(
      request,
      {.cuts = {{"third", third}, {"nonsense", nonsense}}, .schedules = {}, .placements = {}});
  EXPECT_EQ(asked, 1U);
  EXPECT_DOUBLE_EQ(decision.best.step, own);  // A third is worse than the optimum.
}

TEST(Planner, PlacesRanksOnMeasuredLinks) {
  Request request = small();
  request.cluster = cluster_of(4, 1);
  request.global_batch = 128;  // What layers exchange outweighs the gradients.
  request.pins = {.tensor = 2, .data = 2, .pipeline = 1};
  // Hosts 0 and 2, and 1 and 3, are near to each other.
  request.cluster.matrix.assign(16, 1e9);
  for (const auto& [a, b] : {std::pair(0U, 2U), {2U, 0U}, {1U, 3U}, {3U, 1U}}) {
    request.cluster.matrix[4 * a + b] = 50e9;
  }
  EXPECT_THAT(decide(request).best.placement, testing::ElementsAre(0, 2, 1, 3));
  uint32_t asked = 0;
  const PlacementPolicy mine = [&](const PlacementQuestion& question) {
    ++asked;
    EXPECT_EQ(question.bandwidth(0, 2), 50e9);
    return std::vector<uint32_t>{0, 1, 2, 3};
  };
  const Policies policies{.cuts = {}, .schedules = {}, .placements = {{"mine", mine}}};
  EXPECT_THAT(decide(request, policies).best.placement, testing::ElementsAre(0, 2, 1, 3));
  EXPECT_GE(asked, 1U);
}

TEST(Planner, PricesThePlacementAndProvesItAnywhere) {
  Request request = small();
  request.cluster = cluster_of(4, 1);
  request.global_batch = 128;
  request.cluster.matrix.assign(16, 1e9);
  for (const auto& [a, b] : {std::pair(0U, 2U), {2U, 0U}, {1U, 3U}, {3U, 1U}}) {
    request.cluster.matrix[4 * a + b] = 50e9;
  }
  request.pins = {.tensor = 2, .data = 2, .pipeline = 1};
  const Decision decision = decide(request);
  // Tensor parallelism has the wide links, and the step says so.
  EXPECT_LT(decision.best.step, 0.5 * decision.best.unplaced);
  EXPECT_NEAR(decision.best.terms.sum(), decision.best.step, 1e-9);
  EXPECT_LE(decision.bound, decision.best.step);
  // The bound of all links as wide as the widest, whatever is placed.
  Request wide = request;
  wide.cluster.matrix.assign(16, 50e9);
  EXPECT_NEAR(decision.bound, decide(wide).bound, 1e-9);
  EXPECT_GE(decision.best.step, decide(wide).best.step);
  // No numbering of the same hosts changes what can be had.
  Request renumbered = request;
  renumbered.cluster.matrix.assign(16, 1e9);
  for (const auto& [a, b] : {std::pair(0U, 1U), {1U, 0U}, {2U, 3U}, {3U, 2U}}) {
    renumbered.cluster.matrix[4 * a + b] = 50e9;
  }
  EXPECT_NEAR(decide(renumbered).best.step, decision.best.step, 1e-9);
  EXPECT_TRUE(decide(renumbered).best.placement.empty());
}

TEST(Planner, InterleavesForATrainerThatCan) {
  Request request = gpt3();
  EXPECT_EQ(decide(request).best.shape.chunks, 1U);
  const double plain = decide(request).best.step;
  request.trainer = Trainer::kMegatron;
  const Decision interleaved = decide(request);
  EXPECT_GT(interleaved.best.shape.chunks, 1U);
  EXPECT_LT(interleaved.best.step, plain);
}

TEST(Planner, PlansByAProfile) {
  Request request = small();
  Profile profile{.device = request.cluster.types[0].name, .dtype = DType::kBF16, .update = 1e-9};
  for (const LayerType& type : request.model.types) profile.layers[type.name] = {{1, 1, 2}};
  request.pins = {.tensor = 1, .micro_batch = 1, .zero = 0, .recompute = Recompute::kNone};
  request.profile = std::make_shared<const Profile>(profile);
  const Decision decision = decide(request);
  const JobShape& shape = decision.best.shape;
  double slowest = 0;
  for (const PlannedStage& stage : decision.best.stages) {
    slowest = std::max(slowest, 3.0 * (stage.layers.end - stage.layers.begin));
  }
  EXPECT_GE(decision.best.step, slowest * shape.micro_batches);
  EXPECT_LT(decision.best.step, slowest * (shape.micro_batches + shape.pipeline));

  profile.device = "other";
  request.profile = std::make_shared<const Profile>(profile);
  EXPECT_THAT(make_plan(request).status().message(), testing::HasSubstr("not in the cluster"));
  profile.device = request.cluster.types[0].name;
  profile.layers.erase(request.model.types[0].name);
  request.profile = std::make_shared<const Profile>(profile);
  EXPECT_THAT(make_plan(request).status().message(), testing::HasSubstr("was not measured"));
}

TEST(Planner, CanBePinnedToReduceGradientsAfterBackward) {
  Request request = small();
  request.pins = {.pipeline = 1, .zero = 0};
  const double beside = decide(request).best.step;
  request.pins.overlap = false;
  const Decision after = decide(request);
  EXPECT_FALSE(after.best.shape.overlap);
  EXPECT_GT(after.best.step, beside);
}

TEST(Planner, ExpertsAreCutByExperts) {
  Request request{.model = make_transformer({.layers = 16,
                                             .hidden = 2048,
                                             .heads = 16,
                                             .feed_forward = 1024,
                                             .gated = true,
                                             .vocabulary = 50000,
                                             .sequence = 2048,
                                             .experts = 64,
                                             .experts_per_token = 4}),
                  .cluster = cluster_of(2),
                  .global_batch = 256,
                  .pins = {.tensor = 1, .pipeline = 1, .zero = 0}};
  EXPECT_GT(decide(request).best.shape.expert, 1U);
}

}  // namespace
}  // namespace corro::plan
