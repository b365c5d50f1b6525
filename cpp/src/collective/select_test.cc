// The closed forms against the timed simulation, and what they choose.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "collective/schedule.h"
#include "collective/simulate.h"

namespace corro::collective {
namespace {

constexpr uint64_t kElementBytes = 4;

double simulated(Problem problem, Algorithm algorithm, const LinkModel& link) {
  std::vector<Problem> problems;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) problems.push_back(problem);
  return simulated_time_us(generate_all(problems, algorithm), kElementBytes, link);
}

std::string describe(const Problem& problem, Algorithm algorithm) {
  return std::string(name_of(problem.kind)) + " " + std::string(name_of(algorithm)) +
         " size=" + std::to_string(problem.size) + " count=" + std::to_string(problem.count);
}

/// Calls check(problem, algorithm) for every kind, algorithm, and some sizes and counts.
template <typename Check>
void for_each_problem(std::initializer_list<uint64_t> counts, const Check& check) {
  for (int kind = 0; kind <= static_cast<int>(OpKind::kBarrier); ++kind) {
    for (int algorithm = 0; algorithm < kAlgorithmCount; ++algorithm) {
      for (const int32_t size : {2, 3, 4, 8, 13, 16, 32}) {
        for (const uint64_t count : counts) {
          const Problem problem{.kind = static_cast<OpKind>(kind), .size = size, .count = count};
          if (!supports(static_cast<Algorithm>(algorithm), problem)) continue;
          check(problem, static_cast<Algorithm>(algorithm));
        }
      }
    }
  }
}

TEST(ModelledCost, AgreesWithTheSimulationWhereBytesDecide) {
  // The simulated link copies for nothing; a slow one makes the model's copies nothing, too.
  const LinkModel link{.latency_us = 20, .overhead_us = 0.1, .us_per_byte = 0.1};
  for_each_problem({1000, 20000}, [&](const Problem& problem, Algorithm algorithm) {
    const double model = modelled_cost_us(problem, algorithm, kElementBytes, link);
    const double time = simulated(problem, algorithm, link);
    EXPECT_NEAR(model / time, 1, 0.5) << describe(problem, algorithm);
    const auto size = static_cast<uint32_t>(problem.size);
    if ((size & (size - 1)) == 0) {
      EXPECT_NEAR(model / time, 1, 0.03) << describe(problem, algorithm);
    }
  });
}

TEST(ModelledCost, AgreesWithTheSimulationWhereMessagesDecide) {
  const LinkModel link{.latency_us = 20, .overhead_us = 1, .us_per_byte = 0};
  for_each_problem({0, 1}, [&](const Problem& problem, Algorithm algorithm) {
    const double model = modelled_cost_us(problem, algorithm, kElementBytes, link);
    const double time = simulated(problem, algorithm, link);
    // The model charges a root for what it receives as well: up to 31 us here.
    EXPECT_GE(model, time * 0.99) << describe(problem, algorithm);
    EXPECT_LE(model, time * 1.51 + 31) << describe(problem, algorithm);
  });
}

TEST(ModelledCost, FollowsTheOptimalSplit) {
  const LinkModel link{.latency_us = 0, .overhead_us = 0, .us_per_byte = 1e-3};
  for (int32_t k = 0; k <= 4; ++k) {
    const Problem problem{.kind = OpKind::kAllreduce,
                          .size = 4 + k,
                          .count = 1 << 20,
                          .aggregators = k,
                          .chunk_count = 1 << 10};
    const double model = modelled_cost_us(problem, Algorithm::kTwoShot, kElementBytes, link);
    EXPECT_NEAR(model, simulated(problem, Algorithm::kTwoShot, link), 0.02 * model) << k;
  }
}

TEST(Select, TakesTheFastestBySimulationOrOneNearIt) {
  const LinkModel link{.latency_us = 20, .overhead_us = 1, .us_per_byte = 0.05};
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast, OpKind::kAllgather}) {
    for (const int32_t size : {2, 4, 8, 16, 32}) {
      for (const uint64_t count : {1U, 100U, 10000U}) {
        const Problem problem{.kind = kind, .size = size, .count = count};
        const Algorithm chosen = select(problem, kElementBytes, link);
        double best = simulated(problem, chosen, link);
        const double taken = best;
        for (int i = 0; i < kAlgorithmCount; ++i) {
          const auto algorithm = static_cast<Algorithm>(i);
          if (!supports(algorithm, problem)) continue;
          best = std::min(best, simulated(problem, algorithm, link));
        }
        EXPECT_LE(taken, best * 1.1) << describe(problem, chosen);
      }
    }
  }
}

TEST(Select, ChangesFromOneShotToTwoShotWhereTheCurvesCross) {
  // n* = latency P / ((P - 1) (P - 2) us_per_byte), where messages cost nothing but latency: 13.3
  // KiB here.
  const LinkModel link{.latency_us = 20, .overhead_us = 0, .us_per_byte = 1e-3};
  const auto chosen = [&](uint64_t bytes) {
    return select({.kind = OpKind::kAllreduce, .size = 4, .count = bytes}, 1, link);
  };
  EXPECT_EQ(chosen(13000), Algorithm::kOneShot);
  EXPECT_EQ(chosen(13700), Algorithm::kTwoShot);
}

TEST(Select, LeavesFanInForTheRingWhenManyLargeMessagesWouldMeet) {
  const Problem problem{.kind = OpKind::kAllreduce, .size = 32, .count = uint64_t{64} << 20};
  EXPECT_EQ(select(problem, 4, {}), Algorithm::kRabenseifner);
  Problem odd = problem;
  odd.size = 33;
  EXPECT_EQ(select(odd, 4, {}), Algorithm::kRing);
}

TEST(Select, IsTheSameOnEveryRankOfAnUnevenOperation) {
  const std::vector<uint64_t> counts = {1, 100000, 0, 7};
  for (const OpKind kind : {OpKind::kAllgather, OpKind::kReducescatter, OpKind::kAlltoall,
                            OpKind::kGather, OpKind::kScatter}) {
    Problem problem{.kind = kind, .size = 4, .counts = counts};
    if (kind == OpKind::kAlltoall) problem.send_counts = counts;
    const Algorithm first = select(problem, 4, {});
    std::vector<uint64_t> own = counts;
    for (problem.rank = 1; problem.rank < 4; ++problem.rank) {
      problem.count = counts[static_cast<size_t>(problem.rank)];
      if (kind == OpKind::kAlltoall) {  // each rank has its own counts
        std::rotate(own.begin(), own.begin() + 1, own.end());
        problem.counts = problem.send_counts = own;
      }
      problem.in_place = !problem.in_place;
      EXPECT_EQ(select(problem, 4, {}), first) << name_of(kind);
    }
  }
}

TEST(Select, FindsAnAlgorithmForEveryKindAlsoInAGroupOfOne) {
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    const auto operation = static_cast<OpKind>(kind);
    const bool pair = is_pair(operation);
    const Problem problem{
        .kind = operation, .size = pair ? 2 : 1, .root = pair ? 1 : 0, .count = 3};
    EXPECT_TRUE(supports(select(problem, 4, {}), problem)) << name_of(operation);
  }
  EXPECT_THROW((void)select({.size = 0}, 4, {}), ContractError);
}

}  // namespace
}  // namespace corro::collective
