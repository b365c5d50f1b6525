// Every kind by every algorithm for every group size, simulated.
#include "collective/schedule/schedule.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/sanitized.h"
#include "testing/simulation/whole_groups.h"

namespace corro::collective {
namespace {

constexpr int32_t kLargestGroup = 130;

/// All up to kLargestGroup; under sanitizers the small ones and a few around powers of two.
std::vector<int32_t> group_sizes() {
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size <= (kSanitized ? 20 : kLargestGroup); ++size) sizes.push_back(size);
  if (kSanitized) sizes.insert(sizes.end(), {31, 32, 33, 64, 127, kLargestGroup});
  return sizes;
}

std::vector<Algorithm> all_algorithms() {
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < kAlgorithmCount; ++i) algorithms.push_back(static_cast<Algorithm>(i));
  return algorithms;
}

struct Combination {
  OpKind kind;
  Algorithm algorithm;
};

std::vector<Combination> all_combinations() {
  std::vector<Combination> combinations;
  for (int k = 0; k <= static_cast<int>(OpKind::kBarrier); ++k) {
    for (const Algorithm algorithm : all_algorithms()) {
      const auto kind = static_cast<OpKind>(k);
      if (supports(algorithm, {.kind = kind})) combinations.push_back({kind, algorithm});
    }
  }
  return combinations;
}

class EveryAlgorithm : public testing::TestWithParam<Combination> {};

/// Enough elements that most slices have some: fewer, about as many, and more than ranks.
uint64_t count_for(const Combination& combination, int32_t size) {
  if (has_counts(combination.kind)) return 3;
  const bool sliced = combination.algorithm == Algorithm::kTwoShot ||
                      combination.algorithm == Algorithm::kRing ||
                      combination.algorithm == Algorithm::kRabenseifner;
  return sliced ? static_cast<uint64_t>(size) * 3 / 2 : 10;
}

TEST_P(EveryAlgorithm, IsRightForEveryGroupSize) {
  std::mt19937_64 random(1);
  const auto [kind, algorithm] = GetParam();
  for (const int32_t size : group_sizes()) {
    const uint64_t largest = count_for(GetParam(), size);
    Problem problem = random_problem(kind, size, largest, random);
    if (size > 20 && size % 8 != 0) problem.chunk_count = 0;  // a strand a group is enough work
    const bool uneven = has_counts(kind) && random() % 2 == 0;
    Group group = uneven ? uneven_group(problem, largest, random) : even_group(problem);
    if (!supports(algorithm, group.problems[0])) group = even_group(problem);
    choose_in_place(group, random);
    ASSERT_NO_FATAL_FAILURE(expect_right(group, algorithm, random, 1));
  }
}

TEST_P(EveryAlgorithm, IsRightInManyOrdersForSmallGroups) {
  std::mt19937_64 random(2);
  const auto [kind, algorithm] = GetParam();
  for (int32_t size = 1; size <= 9; ++size) {
    for (int i = 0; i < 25; ++i) {
      const Problem problem = random_problem(kind, size, 40, random);
      const bool uneven = has_counts(kind) && random() % 2 == 0;
      Group group = uneven ? uneven_group(problem, 9, random) : even_group(problem);
      if (!supports(algorithm, group.problems[0])) continue;
      choose_in_place(group, random);
      ASSERT_NO_FATAL_FAILURE(expect_right(group, algorithm, random, 4));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, EveryAlgorithm, testing::ValuesIn(all_combinations()),
                         [](const auto& tested) {
                           return std::string(name_of(tested.param.kind)) + "_" +
                                  std::string(name_of(tested.param.algorithm));
                         });

TEST(Served, TakesAnyNumberOfAggregators) {
  std::mt19937_64 random(3);
  for (int32_t size = 2; size <= 20; ++size) {
    for (int32_t aggregators = 1; aggregators < size; ++aggregators) {
      Problem problem = random_problem(OpKind::kAllreduce, size, 100, random);
      problem.aggregators = aggregators;
      for (const Algorithm as : {Algorithm::kTwoShot, Algorithm::kRing}) {
        problem.folds_as = as;
        Group group = even_group(problem);
        choose_in_place(group, random);
        ASSERT_NO_FATAL_FAILURE(expect_right(group, Algorithm::kServed, random, 2));
      }
    }
  }
}

TEST(Served, FoldsAsContributorsDoAlone) {
  Problem problem{.kind = OpKind::kAllreduce, .size = 4, .count = 100};
  const auto order = [&](Algorithm algorithm) { return generate(problem, algorithm).order; };
  const FoldOrder ring = order(Algorithm::kRing), two_shot = order(Algorithm::kTwoShot);
  problem.size = 6;
  problem.aggregators = 2;
  EXPECT_EQ(order(Algorithm::kServed), two_shot);
  problem.folds_as = Algorithm::kRing;
  EXPECT_EQ(order(Algorithm::kServed), ring);
  EXPECT_FALSE(supports(Algorithm::kRing, problem)) << "aggregators have nothing to give";
}

TEST(Direct, SendMeetsRecv) {
  std::mt19937_64 random(4);
  const Group group{
      .problems = {{.kind = OpKind::kSend, .size = 2, .rank = 0, .root = 1, .count = 5},
                   {.kind = OpKind::kRecv, .size = 2, .rank = 1, .root = 0, .count = 5}},
      .counts = {},
      .send_counts = {}};
  expect_right(group, Algorithm::kDirect, random, 3);
}

TEST(Schedules, HaveEveryStepAloneInItsRoundForPairs) {
  const Schedule schedule =
      generate({.kind = OpKind::kSend, .size = 2, .root = 1, .count = 5}, Algorithm::kDirect);
  EXPECT_EQ(schedule.steps.size(), 1U);
}

TEST(Schedules, FoldInRankOrderWhereTheySaySo) {
  for (const Algorithm algorithm : all_algorithms()) {
    const Problem problem{.kind = OpKind::kAllreduce, .size = 5, .count = 10};
    if (!supports(algorithm, problem)) continue;
    const bool shots = algorithm == Algorithm::kOneShot || algorithm == Algorithm::kTwoShot;
    EXPECT_EQ(generate(problem, algorithm).order == FoldOrder::kRank, shots) << name_of(algorithm);
  }
}

TEST(Schedules, FoldAtOnceWhereThatIsAskedFor) {
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kReducescatter, OpKind::kReduce}) {
    int able = 0;
    for (const Algorithm algorithm : all_algorithms()) {
      const Problem problem{.kind = kind, .size = 5, .count = 10, .at_once = true};
      if (!supports(algorithm, problem)) continue;
      EXPECT_EQ(generate(problem, algorithm).order, FoldOrder::kRank) << name_of(algorithm);
      ++able;
    }
    EXPECT_GE(able, 1) << name_of(kind);
  }
}

TEST(Schedules, OfWholeVectorsCutNone) {
  for (const int32_t size : {1, 2, 5, 8}) {
    Problem problem{.kind = OpKind::kAllreduce,
                    .size = size,
                    .count = 100'000,
                    .whole = true,
                    .chunk_count = 64};
    for (const Algorithm algorithm : all_algorithms())
      EXPECT_EQ(supports(algorithm, problem), algorithm == Algorithm::kRecursiveDoubling);
    for (problem.rank = 0; problem.rank < size; ++problem.rank) {
      for (const Step& step : generate(problem, Algorithm::kRecursiveDoubling).steps) {
        EXPECT_EQ(std::max(step.from.count, step.into.count), problem.count);
        EXPECT_LE(step.sources_count, 2U);
      }
    }
  }
}

TEST(Schedules, KeepMessagesBelowTheChunkAndStrandsBounded) {
  for (const Algorithm algorithm : {Algorithm::kTwoShot, Algorithm::kRing}) {
    Problem problem{.kind = OpKind::kAllreduce, .size = 3, .count = 10000, .chunk_count = 64};
    for (const Step& step : generate(problem, algorithm).steps) {
      EXPECT_LE(step.from.count, 64U);
      EXPECT_LE(step.into.count, 64U);
    }
    problem.count = 10'000'000;
    EXPECT_LE(generate(problem, algorithm).strands, 1024U);
  }
}

/// What a schedule of one strand costs, over all ranks.
struct Cost {
  uint64_t steps = 0;    ///< Rounds with messages.
  uint64_t moved = 0;    ///< Elements the busiest rank sends, or receives.
  uint64_t scratch = 0;  ///< Of the rank that needs most.
};

Cost cost_of(const Problem& problem, Algorithm algorithm) {
  Cost cost;
  std::set<uint32_t> rounds;
  for (const Schedule& schedule : generate_all(even_group(problem).problems, algorithm)) {
    uint64_t sent = 0;
    uint64_t received = 0;
    for (const Step& step : schedule.steps) {
      if (step.peer >= 0) rounds.insert(step.round);
      if (step.kind == StepKind::kSend) sent += step.from.count;
      if (step.kind == StepKind::kRecv) received += step.into.count;
    }
    cost.moved = std::max({cost.moved, sent, received});
    cost.scratch = std::max(cost.scratch, schedule.scratch_count);
  }
  cost.steps = rounds.size();
  return cost;
}

/// The table of docs/algorithms.md for P = 8, so L = 3, and n = 80.
TEST(Schedules, CostWhatTheDocumentationSays) {
  using enum OpKind;
  using enum Algorithm;
  struct Row {
    OpKind kind;
    Algorithm algorithm;
    Cost want;
  };
  const uint64_t n = 80;
  const Row rows[] = {
      {kAllreduce, kOneShot, {1, 7 * n, 7 * n}},
      {kAllreduce, kTwoShot, {2, 2 * 7 * n / 8, 7 * n / 8}},
      {kAllreduce, kRing, {14, 2 * 7 * n / 8, 2 * n / 8}},
      {kAllreduce, kRecursiveDoubling, {3, 3 * n, n}},
      {kAllreduce, kRabenseifner, {6, 2 * 7 * n / 8, n / 2}},
      {kReducescatter, kTwoShot, {1, 7 * n, 7 * n}},
      {kReducescatter, kRing, {7, 7 * n, 2 * n}},
      {kAllgather, kDirect, {1, 7 * n, 0}},
      {kAllgather, kRing, {7, 7 * n, 0}},
      {kAllgather, kBruck, {3, 7 * n, 8 * n}},
      {kAlltoall, kDirect, {1, 7 * n, 0}},
      {kAlltoall, kBruck, {3, 3 * 4 * n, 4 * 4 * n}},
      {kBroadcast, kDirect, {1, 7 * n, 0}},
      {kBroadcast, kBinomial, {3, 3 * n, 0}},
      {kBroadcast, kRing, {7, n, 0}},
      {kReduce, kDirect, {1, 7 * n, 7 * n}},
      {kReduce, kBinomial, {3, 3 * n, 2 * n}},
      {kGather, kDirect, {1, 7 * n, 0}},
      {kGather, kBinomial, {3, 7 * n, 4 * n}},
      {kScatter, kDirect, {1, 7 * n, 0}},
      {kScatter, kBinomial, {3, 7 * n, 4 * n}},
      {kBarrier, kDirect, {1, 0, 0}},
      {kBarrier, kBinomial, {3, 0, 0}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(name_of(row.kind)) + " " + std::string(name_of(row.algorithm)));
    const Cost cost =
        cost_of({.kind = row.kind, .size = 8, .root = 3, .count = row.kind == kBarrier ? 0 : n},
                row.algorithm);
    EXPECT_EQ(cost.steps, row.want.steps);
    EXPECT_EQ(cost.moved, row.want.moved);
    EXPECT_EQ(cost.scratch, row.want.scratch);
  }
  EXPECT_EQ(std::size(rows), all_combinations().size()) << "a row is missing";
}

TEST(Schedules, CostTwoMoreStepsBeyondAPowerOfTwo) {
  const Problem problem{.kind = OpKind::kAllreduce, .size = 6, .count = 80};
  const Cost doubling = cost_of(problem, Algorithm::kRecursiveDoubling);
  EXPECT_EQ(doubling.steps, 2U + 2);
  EXPECT_EQ(doubling.moved, 3U * 80);
  EXPECT_EQ(doubling.scratch, 80U);
  const Cost halving = cost_of(problem, Algorithm::kRabenseifner);
  EXPECT_EQ(halving.steps, 4U + 2);
  EXPECT_EQ(halving.moved, 80U + 2 * 3 * 80 / 4);
  EXPECT_EQ(halving.scratch, 80U);
}

TEST(Supports, RefusesWhatIsMalformed) {
  const std::vector<uint64_t> three = {1, 2, 3};
  const Problem good{.kind = OpKind::kAllgather, .size = 3, .counts = three};
  EXPECT_TRUE(supports(Algorithm::kDirect, good));
  const auto refused = [&](auto change) {
    Problem bad = good;
    change(bad);
    return !supports(Algorithm::kDirect, bad);
  };
  EXPECT_TRUE(refused([](Problem& p) { p.size = 0; }));
  EXPECT_TRUE(refused([](Problem& p) { p.size = 4; })) << "counts are not per rank";
  EXPECT_TRUE(refused([](Problem& p) { p.rank = 3; }));
  EXPECT_TRUE(refused([](Problem& p) { p.root = -1; }));
  EXPECT_TRUE(refused([](Problem& p) { p.aggregators = 1; }));
  EXPECT_TRUE(refused([](Problem& p) { p.kind = OpKind::kSend; })) << "to itself";
  EXPECT_THROW((void)generate({.kind = OpKind::kAllreduce}, Algorithm::kBruck), ContractError);
}

}  // namespace
}  // namespace corro::collective
