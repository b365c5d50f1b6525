#include "plan/solve/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <vector>

#include "base/check.h"
#include "plan/solve/stage_instances.h"
#include "plan/solve/transformer_graph.h"

namespace corro::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

StagePlan solve(const StageProblem& problem, const StageOptions& options = {}) {
  auto plan = place_stages(problem, options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return *plan;
}

std::vector<uint32_t> ends_of(const StagePlan& plan) {
  std::vector<uint32_t> ends;
  for (const auto& stage : plan.stages) ends.push_back(stage.range.end);
  return ends;
}

TEST(Stages, CutsLayersOfDifferentTimes) {  // T4
  const std::vector<double> times{2, 1, 1, 1, 1, 3};
  StageProblem problem{.runs = std::vector<uint32_t>(6, 1),
                       .devices = {3},
                       .meshes = {{0, 1}},
                       .weights = {.slowest = 7},
                       .stages = 3,
                       .cost = [&](const StageRange& range, const Mesh&, uint32_t) {
                         return StageCost(std::accumulate(times.begin() + range.begin,
                                                          times.begin() + range.end, 0.0));
                       }};
  const StagePlan plan = solve(problem);
  EXPECT_EQ(plan.step, 30);
  EXPECT_EQ(plan.bound, 30);
  EXPECT_TRUE(plan.exact);
  EXPECT_THAT(ends_of(plan), ElementsAre(2, 5, 6));
  problem.stages = 0;  // No other number of stages is better on three devices.
  EXPECT_EQ(solve(problem).step, 30);
}

/// A problem of a few layers with costs at random: longer with more layers and, by `pressure`, with
/// more stages behind; some infinite.
struct RandomProblem {
  StageProblem problem;
  std::vector<double> layer_times;
  std::vector<double> fill_shares;
  double pressure;
  uint32_t most_in_flight;

  explicit RandomProblem(RandomCosts& costs) {
    problem.runs.resize(1 + costs.upto(3));
    for (uint32_t& run : problem.runs) {
      run = 1 + costs.upto(2);
      const double time = 1 + costs.next();
      layer_times.insert(layer_times.end(), run, time);
    }
    problem.devices.resize(1 + costs.upto(2));
    for (uint32_t& units : problem.devices) units = 1 + costs.upto(3);
    const auto types = static_cast<uint32_t>(problem.devices.size());
    for (uint32_t i = 0; i < 3; ++i) {
      problem.meshes.push_back({costs.upto(types), 1 + costs.upto(3)});
      fill_shares.push_back(0.5 + costs.next() / 10);
    }
    problem.meshes.push_back({0, 1});
    fill_shares.push_back(1);
    problem.weights = {.slowest = costs.upto(3) == 0 ? 0 : costs.next(),
                       .others = 0.25 + costs.next() / 5,
                       .last = 1,
                       .constant = costs.next()};
    if (costs.upto(3) == 0) problem.stages = 1 + costs.upto(4);
    pressure = costs.upto(2) * costs.next() / 20;
    most_in_flight = 2 + costs.upto(6);
    problem.cost = [this](const StageRange& range, const Mesh& mesh, uint32_t from_end) {
      return cost(range, mesh, from_end);
    };
  }
  RandomProblem(const RandomProblem&) = delete;
  RandomProblem& operator=(const RandomProblem&) = delete;

  StageCost cost(const StageRange& range, const Mesh& mesh, uint32_t from_end) const {
    const double sum =
        std::accumulate(layer_times.begin() + range.begin, layer_times.begin() + range.end, 0.0);
    if ((range.end - range.begin) * from_end > most_in_flight * mesh.units) return kInfinite;
    const double time =
        sum / std::pow(mesh.units, 0.8) * (1 + mesh.type) * (1 + pressure * from_end);
    size_t number = 0;
    while (problem.meshes[number].type != mesh.type || problem.meshes[number].units != mesh.units)
      ++number;
    return {time, time * fill_shares[number]};
  }

  /// All plans, from the last stage on; gives the least step.
  double brute_force() const {
    return brute_force(static_cast<uint32_t>(layer_times.size()), problem.devices, 1, 0, 0);
  }

  double brute_force(uint32_t end, std::vector<uint32_t> units, uint32_t from_end, double sum,
                     double slowest) const {
    if (end == 0) {
      const bool counts = problem.stages == 0 || problem.stages == from_end - 1;
      return counts ? problem.weights.constant + sum + problem.weights.slowest * slowest
                    : kInfinite;
    }
    double least = kInfinite;
    for (const Mesh& mesh : problem.meshes) {
      if (units[mesh.type] < mesh.units) continue;
      std::vector<uint32_t> left = units;
      left[mesh.type] -= mesh.units;
      for (uint32_t begin = 0; begin < end; ++begin) {
        const StageCost here = cost({begin, end}, mesh, from_end);
        if (here.time == kInfinite) continue;
        const double weight = from_end == 1 ? problem.weights.last : problem.weights.others;
        least = std::min(least, brute_force(begin, left, from_end + 1, sum + weight * here.fill,
                                            std::max(slowest, here.time)));
      }
    }
    return least;
  }
};

/// That the stages are a plan of the problem, and that the step is what they take.
void expect_is_plan(const RandomProblem& random, const StagePlan& plan) {
  const StageProblem& problem = random.problem;
  std::vector<uint32_t> units(problem.devices.size());
  double sum = problem.weights.constant;
  double slowest = 0;
  uint32_t begin = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const auto& stage = plan.stages[i];
    EXPECT_EQ(stage.range.begin, begin);
    begin = stage.range.end;
    units[stage.mesh.type] += stage.mesh.units;
    const auto from_end = static_cast<uint32_t>(plan.stages.size() - i);
    const StageCost cost = random.cost(stage.range, stage.mesh, from_end);
    EXPECT_EQ(stage.time, cost.time);
    EXPECT_EQ(stage.fill, cost.fill);
    sum += cost.fill * (from_end == 1 ? problem.weights.last : problem.weights.others);
    slowest = std::max(slowest, cost.time);
  }
  EXPECT_EQ(begin, random.layer_times.size());
  for (size_t type = 0; type < units.size(); ++type) EXPECT_LE(units[type], problem.devices[type]);
  EXPECT_NEAR(plan.step, sum + problem.weights.slowest * slowest, 1e-9);
  if (problem.stages > 0) {
    EXPECT_EQ(plan.stages.size(), problem.stages);
  }
}

TEST(Stages, EqualBruteForceOnSmallProblems) {
  RandomCosts costs(21);
  int solved = 0;
  int impossible = 0;
  for (int i = 0; i < 600; ++i) {
    const RandomProblem random(costs);
    const double least = random.brute_force();
    const auto plan = place_stages(random.problem);
    if (least == kInfinite) {
      ++impossible;
      EXPECT_EQ(plan.status().code(), Code::kResourceExhausted);
      continue;
    }
    ++solved;
    ASSERT_TRUE(plan.ok()) << i << ": " << plan.status().to_string();
    EXPECT_NEAR(plan->step, least, 1e-9) << i;
    EXPECT_TRUE(plan->exact);
    EXPECT_EQ(plan->bound, plan->step);
    expect_is_plan(random, *plan);
  }
  EXPECT_GT(solved, 200);
  EXPECT_GT(impossible, 20);
}

TEST(Stages, BoundTheOptimumWhenTheSweepIsCutShort) {
  RandomCosts costs(22);
  int inexact = 0;
  for (int i = 0; i < 200; ++i) {
    const RandomProblem random(costs);
    const double least = random.brute_force();
    if (least == kInfinite) continue;
    const StagePlan plan = solve(random.problem, {.most_bounds = 1});
    EXPECT_LE(plan.bound, least + 1e-9);
    EXPECT_GE(plan.step, least - 1e-9);
    expect_is_plan(random, plan);
    inexact += plan.exact ? 0 : 1;
  }
  EXPECT_GT(inexact, 0);
}

TEST(Stages, LookForNothingThatTakesTheCutOrLonger) {
  RandomCosts costs(24);
  size_t asked = 0;
  size_t asked_with_cut = 0;
  for (int i = 0; i < 300; ++i) {
    const RandomProblem random(costs);
    const auto whole = place_stages(random.problem);
    if (!whole.ok()) continue;
    const StagePlan same = solve(random.problem, {.cut = whole->step * 1.001});
    EXPECT_EQ(same.step, whole->step) << i;
    expect_is_plan(random, same);
    const StagePlan none = solve(random.problem, {.cut = whole->step * 0.9});
    EXPECT_TRUE(none.stages.empty()) << i;
    EXPECT_TRUE(none.exact);
    EXPECT_GE(none.bound, whole->step * 0.9 * (1 - 1e-9)) << i;
    EXPECT_LE(none.bound, whole->step * (1 + 1e-9)) << i;
    const StagePlan short_one = solve(random.problem, {.most_bounds = 1, .cut = whole->step});
    EXPECT_LE(short_one.bound, whole->step * (1 + 1e-9)) << i;
    asked += whole->costs_asked;
    asked_with_cut += none.costs_asked;
  }
  EXPECT_LT(asked_with_cut, asked);
}

TEST(Stages, MoreDevicesNeverTakeMoreTime) {
  RandomCosts costs(23);
  for (int i = 0; i < 100; ++i) {
    RandomProblem random(costs);
    const auto before = place_stages(random.problem);
    ++random.problem.devices[0];
    if (before.ok()) {
      EXPECT_LE(solve(random.problem).step, before->step + 1e-9);
    }
  }
}

TEST(Stages, AskForEachCostOnce) {
  StageProblem problem = large_stage_problem({.layers = 24, .nodes = 16, .micro_batches = 32});
  std::set<std::vector<uint32_t>> asked;
  size_t calls = 0;
  const auto cost = problem.cost;
  problem.cost = [&](const StageRange& range, const Mesh& mesh, uint32_t from_end) {
    ++calls;
    // With one layer at each end that differs, these say all that a range holds.
    asked.insert({range.end - range.begin, range.begin == 0 ? 1U : 0U, range.end == 24 ? 1U : 0U,
                  mesh.units, from_end});
    return cost(range, mesh, from_end);
  };
  const StagePlan plan = solve(problem);
  EXPECT_EQ(plan.costs_asked, calls);
  EXPECT_EQ(asked.size(), calls);
}

TEST(Stages, PlanGpt3OnAThousandDevices) {
  const StagePlan plan = solve(large_stage_problem({}));
  EXPECT_TRUE(plan.exact);
  EXPECT_LT(plan.bounds_tried, 64U);
  RecordProperty("bounds_tried", static_cast<int>(plan.bounds_tried));
  RecordProperty("costs_asked", static_cast<int>(plan.costs_asked));
}

TEST(Stages, RefuseCostsThatFallAwayFromTheEnd) {
  StageProblem problem{.runs = {6},
                       .devices = {6},
                       .meshes = {{0, 1}},
                       .weights = {.slowest = 7},
                       .cost = [](const StageRange& range, const Mesh&, uint32_t from_end) {
                         return StageCost((range.end - range.begin) / (1.0 + from_end));
                       }};
  EXPECT_THROW((void)place_stages(problem), ContractError);
  problem.cost = [](const auto&, const auto&, uint32_t) { return StageCost(std::nan("")); };
  EXPECT_THROW((void)place_stages(problem), ContractError);
}

TEST(Stages, TakeACostThatFallsALittleForNoLess) {
  const StageProblem problem{
      .runs = {6},
      .devices = {3},
      .meshes = {{0, 1}},
      .weights = {.slowest = 7},
      .stages = 3,
      .cost = [](const StageRange& range, const Mesh&, uint32_t from_end) {
        return StageCost((range.end - range.begin) * (from_end > 2 ? 0.99 : 1.0));
      }};
  const auto plan = place_stages(problem);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_EQ(plan->stages.size(), 3U);
  EXPECT_EQ(plan->stages[0].range.end, 2U);
}

TEST(Stages, TakeTheLeastSumWhereTheSlowestDoesNotCount) {
  // One micro-batch: one stage has no transfers.
  StageProblem problem{.runs = {4},
                       .devices = {4},
                       .meshes = {{0, 1}},
                       .weights = {.slowest = 0},
                       .cost = [](const StageRange& range, const Mesh&, uint32_t) {
                         return StageCost(range.end - range.begin + 0.5);
                       }};
  const StagePlan plan = solve(problem);
  EXPECT_EQ(plan.step, 4.5);
  EXPECT_EQ(plan.stages.size(), 1U);
  EXPECT_TRUE(plan.exact);
}

TEST(Stages, RefuseWhatIsNoProblem) {
  const auto says = [](auto change) {
    StageProblem problem{.runs = {2},
                         .devices = {1},
                         .meshes = {{0, 1}},
                         .weights = {},
                         .cost = [](const auto&, const auto&, uint32_t) { return StageCost(1); }};
    change(problem);
    const auto plan = place_stages(problem);
    EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
    return plan.status().message();
  };
  EXPECT_THAT(says([](auto& p) { p.cost = nullptr; }), HasSubstr("no cost"));
  EXPECT_THAT(says([](auto& p) { p.runs = {}; }), HasSubstr("must be layers"));
  EXPECT_THAT(says([](auto& p) { p.runs = {1, 0}; }), HasSubstr("must be layers"));
  EXPECT_THAT(says([](auto& p) { p.runs = {4'000'000'000, 4'000'000'000}; }),
              HasSubstr("8000000000 layers, more than 1024"));
  EXPECT_THAT(says([](auto& p) { p.devices = {}; }), HasSubstr("0 device types"));
  EXPECT_THAT(says([](auto& p) { p.devices = {1, 1, 1, 1}; }), HasSubstr("4 device types"));
  EXPECT_THAT(says([](auto& p) { p.last_class = 0; }), HasSubstr("last_class"));
  EXPECT_THAT(says([](auto& p) { p.meshes = {}; }), HasSubstr("no meshes"));
  EXPECT_THAT(says([](auto& p) { p.meshes = {{1, 1}}; }), HasSubstr("of type 1; there are 1"));
  EXPECT_THAT(says([](auto& p) { p.meshes = {{0, 0}}; }), HasSubstr("mesh of 0 units"));
  EXPECT_THAT(says([](auto& p) { p.devices = {100'000'000}; }), HasSubstr("use larger units"));
}

}  // namespace
}  // namespace corro::plan
