// Named operations end to end: the leader's negotiator and every member's queue, in seeded orders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/sanitized.h"
#include "named/named_simulation.h"
#include "named/named_test_entry.h"

namespace corro::named {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kSeeds = kSanitized ? 6 : 25;
constexpr uint64_t kPrograms = kSanitized ? 12 : 40;
constexpr uint64_t kWaits = kSanitized ? 12 : 80;
constexpr uint64_t kManyPrograms = kSanitized ? 30 : 250;

std::string grad(size_t i) { return fmt::format("grad.{}", i); }

/// Every rank submits `length` names in its own order, then waits for all of them.
void add_step(NamedSimulation& simulation, int32_t size, size_t length,
              const std::function<void(int32_t, std::vector<size_t>&)>& order = {}) {
  for (int32_t rank = 0; rank < size; ++rank) {
    std::vector<size_t> names(length);
    std::iota(names.begin(), names.end(), size_t{0});
    if (order) order(rank, names);
    for (const size_t i : names) simulation.submit(rank, entry(grad(i), 16 + i));
    for (const size_t i : names) simulation.wait(rank, grad(i));
  }
}

class Seeds : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Seeds, ::testing::Values(1, 2, 4));

TEST_P(Seeds, AnyOrderOnAnyRankRuns) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = GetParam(), .seed = seed});
    std::mt19937_64 random(seed);
    for (int step = 0; step < 5; ++step) {
      add_step(simulation, GetParam(), 12, [&random](int32_t, std::vector<size_t>& names) {
        std::shuffle(names.begin(), names.end(), random);
      });
    }
    ASSERT_TRUE(simulation.run());
    EXPECT_EQ(simulation.completed(), 5U * 12U * static_cast<uint64_t>(GetParam()));
  }
}

TEST_P(Seeds, RepeatedStepBecomesAPlanWithoutMessages) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = GetParam(), .seed = seed});
    for (int step = 0; step < 10; ++step) add_step(simulation, GetParam(), 40);
    ASSERT_TRUE(simulation.run());
    ASSERT_TRUE(simulation.following());
    const uint64_t messages = simulation.messages();
    const uint64_t planned = simulation.planned_operations();
    for (int step = 0; step < 15; ++step) add_step(simulation, GetParam(), 40);
    ASSERT_TRUE(simulation.run());
    EXPECT_EQ(simulation.messages(), messages) << "no message while everyone follows";
    EXPECT_GT(simulation.planned_operations(), planned);
    EXPECT_EQ(simulation.completed(), 25U * 40U * static_cast<uint64_t>(GetParam()));
  }
}

TEST_P(Seeds, RanksWithDifferentFixedOrdersFollowOnePlan) {
  int following = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = GetParam(), .seed = seed});
    for (int step = 0; step < 12; ++step) {
      add_step(simulation, GetParam(), 40, [](int32_t rank, std::vector<size_t>& names) {
        // Neighbours swapped: the leader's order may still repeat.
        if (rank % 2 == 1) std::swap(names[3], names[4]);
      });
    }
    ASSERT_TRUE(simulation.run());
    following += simulation.following() ? 1 : 0;
  }
  EXPECT_GT(following, 0);
}

TEST_P(Seeds, LeavingAPlanFallsBackAndComesBack) {
  // Every few steps all ranks do something else: another name first, another shape, or fewer names.
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = GetParam(), .seed = seed, .hurry = seed % 2 == 0});
    uint64_t expected = 0;
    for (int step = 0; step < 60; ++step) {
      if (step % 20 == 19) {
        for (int32_t rank = 0; rank < GetParam(); ++rank) {
          if (seed % 3 == 0) {
            simulation.submit(rank, entry("loss", 1));
            simulation.wait(rank, "loss");
          } else if (seed % 3 == 1) {
            simulation.submit(rank, entry(grad(0), 999));
            simulation.wait(rank, grad(0));
          } else {
            simulation.submit(rank, entry(grad(5), 21));
            simulation.wait(rank, grad(5));
          }
        }
        expected += 1;
      }
      add_step(simulation, GetParam(), 36);
      expected += 36;
    }
    ASSERT_TRUE(simulation.run());
    EXPECT_EQ(simulation.completed(), expected * static_cast<uint64_t>(GetParam()));
    EXPECT_GT(simulation.planned_operations(), 0U);
  }
}

TEST_P(Seeds, WaitingForOneBeforeSubmittingTheNextLeavesThePlan) {
  // The plan may have fused what is now submitted one by one: patience, or the wait itself, ends
  // it.
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = GetParam(), .seed = seed, .hurry = seed % 2 == 0});
    for (int step = 0; step < 8; ++step) add_step(simulation, GetParam(), 36);
    for (int step = 0; step < 3; ++step) {
      for (int32_t rank = 0; rank < GetParam(); ++rank) {
        for (size_t i = 0; i < 36; ++i) {
          simulation.submit(rank, entry(grad(i), 16 + i));
          simulation.wait(rank, grad(i));
        }
      }
    }
    ASSERT_TRUE(simulation.run());
    EXPECT_EQ(simulation.completed(), 11U * 36U * static_cast<uint64_t>(GetParam()));
  }
}

TEST_P(Seeds, MismatchFailsOnEveryRankNamesBothSidesAndTheRestGoesOn) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank cannot differ";
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = GetParam(), .seed = seed});
    for (int32_t rank = 0; rank < GetParam(); ++rank) {
      simulation.submit(rank, entry("a"));
      simulation.submit(rank, entry("b", rank == 1 ? 50 : 100));
      simulation.submit(rank, entry("c"));
      simulation.wait(rank, "b");
      simulation.submit(rank, entry("b", 70));
      simulation.wait(rank, "b");
    }
    ASSERT_TRUE(simulation.run());
    for (int32_t rank = 0; rank < GetParam(); ++rank) {
      ASSERT_THAT(simulation.failures(rank), SizeIs(1));
      EXPECT_THAT(simulation.failures(rank)[0],
                  AllOf(HasSubstr("\"b\""), HasSubstr("rank 1 submitted allreduce(f32[50], sum)"),
                        HasSubstr("allreduce(f32[100], sum)")));
    }
    EXPECT_EQ(simulation.completed(), 3U * static_cast<uint64_t>(GetParam()));
  }
}

TEST_P(Seeds, MismatchInsideAPlanFailsOnEveryRankAndTheRestGoesOn) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank cannot differ";
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = GetParam(), .seed = seed});
    for (int step = 0; step < 8; ++step) add_step(simulation, GetParam(), 36);
    for (int32_t rank = 0; rank < GetParam(); ++rank) {
      for (size_t i = 0; i < 36; ++i) {
        simulation.submit(rank, entry(grad(i), i == 7 && rank == 1 ? 500 : 16 + i));
      }
      for (size_t i = 0; i < 36; ++i) simulation.wait(rank, grad(i));
    }
    for (int step = 0; step < 8; ++step) add_step(simulation, GetParam(), 36);
    ASSERT_TRUE(simulation.run());
    const size_t failed = 1;  // Peers that were already inside its bucket have taken that back.
    for (int32_t rank = 0; rank < GetParam(); ++rank) {
      EXPECT_THAT(simulation.failures(rank), SizeIs(failed));
      EXPECT_THAT(simulation.failures(rank), Each(HasSubstr("allreduce(f32[500], sum)")));
      EXPECT_THAT(simulation.failures(rank), Each(HasSubstr("allreduce(f32[23], sum)")));
    }
    EXPECT_EQ(simulation.completed() + failed * static_cast<uint64_t>(GetParam()),
              17U * 36U * static_cast<uint64_t>(GetParam()));
  }
}

TEST_P(Seeds, RandomProgramsNeitherHangNorMixThingsUp) {
  // Steps that repeat for a while, with ranks in their own orders, shuffled from time to time, some
  // waiting one by one, one rank leaving names out at the end: whatever can run runs, the rest is
  // given up with an error.
  uint64_t planned = 0;
  uint64_t given_up = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int32_t size = GetParam();
    NegotiatorOptions negotiator;
    if (random() % 3 == 0) negotiator.fusion.threshold_bytes = 0;
    NamedSimulation simulation({.size = size,
                                .seed = seed,
                                .negotiator = negotiator,
                                .depth = 1 + random() % 5,
                                .hurry = random() % 2 == 0});
    const size_t length = 1 + random() % 40;
    std::vector<std::vector<size_t>> orders(static_cast<size_t>(size));
    for (auto& order : orders) {
      order.resize(length);
      std::iota(order.begin(), order.end(), size_t{0});
    }
    const bool leaves_out = size > 1 && length > 1 && random() % 4 == 0;
    for (int step = 0; step < 40; ++step) {
      const bool one_by_one = random() % 16 == 0;
      for (int32_t rank = 0; rank < size; ++rank) {
        auto& order = orders[static_cast<size_t>(rank)];
        if (random() % 24 == 0) std::shuffle(order.begin(), order.end(), random);
        if (one_by_one) std::sort(order.begin(), order.end());
        const size_t count = step == 39 && rank == 0 && leaves_out ? length / 2 : length;
        for (size_t i = 0; i < count; ++i) {
          simulation.submit(rank, entry(grad(order[i]), order[i]));
          if (one_by_one) simulation.wait(rank, grad(order[i]));
        }
        for (size_t i = 0; i < count; ++i) simulation.wait(rank, grad(order[i]));
      }
    }
    const bool all_ran = simulation.run();
    EXPECT_EQ(all_ran, !leaves_out) << simulation.given_up();
    planned += simulation.planned_operations();
    given_up += simulation.given_up();
  }
  EXPECT_GT(planned, 0U);
  if (GetParam() > 1) {
    EXPECT_GT(given_up, 0U);
  }
}

TEST(NamedOps, OneRankInOrderOfItsOwnOneByOneIsServed) {
  // Rank 0 submits everything at once, rank 1 one after the other in another order each step.
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    NamedSimulation simulation({.size = 2, .seed = seed});
    const size_t length = 2 + random() % 6;
    for (int step = 0; step < 60; ++step) {
      std::vector<size_t> names(length);
      std::iota(names.begin(), names.end(), size_t{0});
      for (const size_t i : names) simulation.submit(0, entry(grad(i)));
      for (const size_t i : names) simulation.wait(0, grad(i));
      std::shuffle(names.begin(), names.end(), random);
      for (const size_t i : names) {
        simulation.submit(1, entry(grad(i)));
        simulation.wait(1, grad(i));
      }
    }
    EXPECT_TRUE(simulation.run());
  }
}

TEST_P(Seeds, OneRankAloneMayWaitInsideALearnedStep) {
  // The others are inside a fused bucket of which one rank submits one operation and waits for it:
  // the bucket is taken back, and what all ranks have submitted runs.
  uint64_t taken_back = 0;
  for (uint64_t seed = 0; seed < kWaits; ++seed) {
    SCOPED_TRACE(seed);
    const int32_t size = GetParam();
    NamedSimulation simulation(
        {.size = size, .seed = seed, .depth = 1 + seed % 5, .hurry = seed % 2 == 0});
    const auto alone = static_cast<int32_t>(seed / 2 % static_cast<uint64_t>(size));
    for (int step = 0; step < 8; ++step) add_step(simulation, size, 36);
    for (int32_t rank = 0; rank < size; ++rank) {
      for (size_t i = 0; i < 36; ++i) {
        simulation.submit(rank, entry(grad(i), 16 + i));
        if (rank == alone && (seed % 3 == 0 || i == seed % 36)) simulation.wait(rank, grad(i));
      }
      for (size_t i = 0; i < 36; ++i) simulation.wait(rank, grad(i));
    }
    for (int step = 0; step < 8; ++step) add_step(simulation, size, 36);
    ASSERT_TRUE(simulation.run());
    EXPECT_EQ(simulation.completed(), 17U * 36U * static_cast<uint64_t>(size));
    taken_back += simulation.taken_back();
  }
  if (GetParam() > 1) {
    EXPECT_GT(taken_back, 0U);
  }
}

TEST_P(Seeds, NoRankWaitsForWhatAllHaveSubmitted) {
  // Programs that repeat long enough to be learned, then change on single ranks: their order, their
  // waits in the middle, a step or its half left out before a join. NamedSimulation checks whenever
  // nothing moves that nobody waits for what all ranks have submitted; here everything is.
  uint64_t planned = 0, taken_back = 0;
  for (uint64_t seed = 0; seed < kManyPrograms; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int32_t size = GetParam();
    NegotiatorOptions negotiator{.waits_for_all = random() % 4 != 0};
    if (random() % 3 == 0) negotiator.fusion.threshold_bytes = 0;
    NamedSimulation simulation({.size = size,
                                .seed = seed,
                                .negotiator = negotiator,
                                .depth = 1 + random() % 5,
                                .hurry = random() % 2 == 0});
    const size_t length = 2 + random() % 30;
    const bool shuffles = seed % 2 == 0;
    const auto alone = static_cast<int32_t>(random() % static_cast<uint64_t>(size));
    uint64_t submitted = 0;
    for (int32_t rank = 0; rank < size; ++rank) {
      std::vector<size_t> order(length);
      std::iota(order.begin(), order.end(), size_t{0});
      const bool joins = seed % 4 == 1;  // In different orders, halves of a step would hang.
      const uint64_t steps = 40 - (joins ? random() % 3 : 0);
      for (uint64_t i = 0; i < steps; ++i) {
        if (shuffles && random() % 32 == 0) std::shuffle(order.begin(), order.end(), random);
        const bool may_wait = !shuffles || rank == alone;  // In different orders two would hang.
        const size_t wait_every = may_wait && random() % 16 == 0 ? 1 + random() % length : 0;
        const size_t count = joins && i + 1 == steps ? random() % (length + 1) : length;
        for (size_t k = 0; k < count; ++k) {
          simulation.submit(rank, entry(grad(order[k]), 1 + order[k]));
          if (wait_every != 0 && k % wait_every == 0)
            simulation.wait(rank, grad(order[random() % (k + 1)]));
        }
        const bool without_waiting = random() % 8 == 0;
        for (size_t k = 0; k < count && !without_waiting; ++k)
          simulation.wait(rank, grad(order[k]));
        submitted += count;
      }
      if (joins) simulation.join(rank);
    }
    ASSERT_TRUE(simulation.run());
    EXPECT_EQ(simulation.completed(), submitted);
    planned += simulation.planned_operations();
    taken_back += simulation.taken_back();
  }
  EXPECT_GT(planned, 0U);
  if (GetParam() > 1) {
    EXPECT_GT(taken_back, 0U);
  }
}

TEST(NamedOps, SmallOperationsAreFused) {
  NamedSimulation simulation({.size = 2, .seed = 3});
  add_step(simulation, 2, 200);
  ASSERT_TRUE(simulation.run());
  EXPECT_LT(simulation.operations(), 150U);
}

TEST(NamedOps, MissingRankIsNamedToThoseWhoWait) {
  NamedSimulation simulation({.size = 3, .seed = 1});
  simulation.submit(0, entry("only here"));
  simulation.submit(2, entry("only here"));
  EXPECT_FALSE(simulation.run());
  EXPECT_THAT(simulation.failures(0), Each(HasSubstr("not submitted by rank 1")));
  EXPECT_THAT(simulation.failures(2), Each(HasSubstr("not submitted by rank 0, 1")))
      << "rank 0 has given up before";
}

}  // namespace
}  // namespace corro::named
