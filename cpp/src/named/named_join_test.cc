// Joins, in seeded orders: ranks that have nothing more to submit, while others go on.
#include "named/named_join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr uint64_t kSeeds = kSanitized ? 6 : 40;
constexpr uint64_t kPrograms = kSanitized ? 20 : 80;

NamedEntry average(const std::string& name, uint64_t count) {
  NamedEntry made = entry(name, count);
  made.op.signature.reduce_op = ReduceOp::kAverage;
  return made;
}

NamedEntry of_kind(OpKind kind, const std::string& name) {
  NamedEntry made = entry(name);
  made.op.signature.kind = kind;
  return made;
}

/// A rank's training: so many steps of `length` gradients, each waited for, then join().
void add_epoch(NamedSimulation& simulation, int32_t rank, int steps, size_t length,
               std::mt19937_64* shuffle = nullptr) {
  std::vector<size_t> order(length);
  std::iota(order.begin(), order.end(), size_t{0});
  for (int step = 0; step < steps; ++step) {
    if (shuffle != nullptr) std::shuffle(order.begin(), order.end(), *shuffle);
    for (const size_t i : order)
      simulation.submit(rank, average(fmt::format("grad.{}", i), 16 + i));
    for (const size_t i : order) simulation.wait(rank, fmt::format("grad.{}", i));
  }
  simulation.join(rank);
}

/// Every rank has been told the same, join by join.
void expect_joins(const NamedSimulation& simulation, int32_t size, size_t joins) {
  EXPECT_THAT(simulation.last_joined(0), SizeIs(joins));
  for (int32_t rank = 1; rank < size; ++rank)
    EXPECT_EQ(simulation.last_joined(rank), simulation.last_joined(0));
}

class Joins : public ::testing::TestWithParam<int32_t> {
 protected:
  [[nodiscard]] static int32_t size() { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Sizes, Joins, ::testing::Values(1, 2, 3, 4));

TEST_P(Joins, RanksWithFewerStepsLetTheOthersGoOnInAnyOrder) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    NamedSimulation simulation({.size = size(), .seed = seed, .depth = 1 + seed % 4});
    uint64_t submitted = 0;
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int32_t rank = 0; rank < size(); ++rank) {
        const int steps = static_cast<int>(random() % 5);
        add_epoch(simulation, rank, steps, 9, &random);
        submitted += static_cast<uint64_t>(steps) * 9;
      }
    }
    ASSERT_TRUE(simulation.run());
    EXPECT_EQ(simulation.completed(), submitted);
    expect_joins(simulation, size(), 3);
  }
}

TEST_P(Joins, TheRankWithMoreStepsThanAllOthersIsTheLast) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = size(), .seed = seed});
    const auto longest = static_cast<int32_t>(seed % static_cast<uint64_t>(size()));
    for (int32_t rank = 0; rank < size(); ++rank)
      add_epoch(simulation, rank, rank == longest ? 5 : 2, 6);
    ASSERT_TRUE(simulation.run());
    EXPECT_THAT(simulation.last_joined(0), Each(longest));
    expect_joins(simulation, size(), 1);
  }
}

TEST_P(Joins, APlanIsLeftWithoutAnErrorAndComesBack) {
  // Others have started operations of the plan when a rank joins: their averages leave it out.
  uint64_t planned = 0, with_identities = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    NegotiatorOptions negotiator;
    if (seed % 3 == 0) negotiator.fusion.threshold_bytes = 0;
    NamedSimulation simulation({.size = size(),
                                .seed = seed,
                                .negotiator = negotiator,
                                .depth = 1 + seed % 5,
                                .hurry = seed % 2 == 0});
    uint64_t submitted = 0;
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int32_t rank = 0; rank < size(); ++rank) {
        const int steps = 12 + static_cast<int>(random() % 4);
        add_epoch(simulation, rank, steps, 36);
        submitted += static_cast<uint64_t>(steps) * 36;
      }
    }
    ASSERT_TRUE(simulation.run());
    EXPECT_EQ(simulation.completed(), submitted);
    expect_joins(simulation, size(), 3);
    planned += simulation.planned_operations();
    with_identities += simulation.with_identities();
  }
  EXPECT_GT(planned, 0U);
  if (size() > 1) {
    EXPECT_GT(with_identities, 0U);
  }
}

TEST_P(Joins, PlansOfShortEpochsComeBackAsSoonAsTheFirst) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = size(), .seed = seed});
    for (int epoch = 0; epoch < 8; ++epoch) {
      const uint64_t before = simulation.planned_operations();
      for (int32_t rank = 0; rank < size(); ++rank) add_epoch(simulation, rank, 12 + rank, 40);
      ASSERT_TRUE(simulation.run());
      EXPECT_GT(simulation.planned_operations(), before) << epoch;
    }
  }
}

TEST_P(Joins, WhatWasSubmittedBeforeIsCounted) {
  // Ranks join without waiting for what they have submitted, in and out of a plan.
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    NamedSimulation simulation({.size = size(), .seed = seed});
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int32_t rank = 0; rank < size(); ++rank) {
        for (uint64_t step = random() % 12; step > 0; --step) {
          for (size_t i = 0; i < 36; ++i)
            simulation.submit(rank, average(fmt::format("grad.{}", i), 16 + i));
        }
        for (size_t i = random() % 36; i > 0; --i)
          simulation.submit(rank, average(fmt::format("grad.{}", i - 1), 15 + i));
        simulation.join(rank);
      }
    }
    ASSERT_TRUE(simulation.run());
    expect_joins(simulation, size(), 3);
    for (int32_t rank = 0; rank < size(); ++rank) EXPECT_THAT(simulation.failures(rank), IsEmpty());
  }
}

TEST_P(Joins, OnlyAllreduceGoesOnAndTheGroupGoesOnAfterOthersFail) {
  if (size() == 1) GTEST_SKIP() << "nobody goes on alone";
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = size(), .seed = seed});
    for (int32_t rank = 0; rank < size(); ++rank) {
      if (rank == 1) {
        simulation.join(rank);
        continue;
      }
      for (const OpKind kind : {OpKind::kBroadcast, OpKind::kReducescatter}) {
        const std::string name(name_of(kind));
        simulation.submit(rank, of_kind(kind, name));
        simulation.wait(rank, name);
      }
      add_epoch(simulation, rank, 2, 5);
    }
    ASSERT_TRUE(simulation.run());
    EXPECT_THAT(simulation.failures(1), IsEmpty());
    for (int32_t rank = 0; rank < size(); ++rank) {
      if (rank == 1) continue;
      ASSERT_THAT(simulation.failures(rank), SizeIs(2));
      EXPECT_THAT(simulation.failures(rank)[0],
                  AllOf(StartsWith("Broadcast is not supported with Join at this time."),
                        HasSubstr("Rank 1 has joined"), HasSubstr("\"broadcast\"")));
      EXPECT_THAT(simulation.failures(rank)[1], StartsWith("Reducescatter is not supported"));
    }
    expect_joins(simulation, size(), 1);
  }
}

TEST_P(Joins, RanksThatRunOutInTheMiddleOfALearnedStepHaveWhatTheySubmitted) {
  // A part of the plan's buckets is there on a rank when it waits for that, or not even waits, and
  // joins.
  uint64_t taken_back = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    NamedSimulation simulation(
        {.size = size(), .seed = seed, .depth = 1 + seed % 5, .hurry = seed % 2 == 0});
    uint64_t submitted = 0;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int32_t rank = 0; rank < size(); ++rank) {
        const uint64_t total = 12 * 36 + random() % (3 * 36);
        for (uint64_t i = 0; i < total; ++i) {
          simulation.submit(rank, average(fmt::format("grad.{}", i % 36), 16 + i % 36));
          if (i % 36 != 35) continue;
          for (uint64_t k = 0; k < 36; ++k) simulation.wait(rank, fmt::format("grad.{}", k));
        }
        if (random() % 2 == 0 && total % 36 != 0)
          simulation.wait(rank, fmt::format("grad.{}", random() % (total % 36)));
        simulation.join(rank);
        submitted += total;
      }
    }
    ASSERT_TRUE(simulation.run());
    EXPECT_EQ(simulation.completed(), submitted);
    expect_joins(simulation, size(), 2);
    taken_back += simulation.taken_back();
  }
  if (size() > 1) {
    EXPECT_GT(taken_back, 0U);
  }
}

TEST_P(Joins, OtherKindsInsideAPlanFailOnThoseWhoHaveStartedThem) {
  uint64_t planned = 0;
  for (uint64_t seed = 0; seed < kSeeds / 2; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = size(), .seed = seed});
    for (int32_t rank = 0; rank < size(); ++rank) {
      for (int step = 0; step < 14 + rank; ++step) {
        for (size_t i = 0; i < 40; ++i) {
          const std::string name = fmt::format("grad.{}", i);
          simulation.submit(rank,
                            i % 20 == 7 ? of_kind(OpKind::kAllgather, name) : average(name, 9));
        }
        for (size_t i = 0; i < 40; ++i) simulation.wait(rank, fmt::format("grad.{}", i));
      }
      simulation.join(rank);
    }
    ASSERT_TRUE(simulation.run());
    for (int32_t rank = 0; rank < size(); ++rank) {
      EXPECT_THAT(simulation.failures(rank), SizeIs(2 * rank));
      EXPECT_THAT(simulation.failures(rank), Each(StartsWith("Allgather is not supported")));
    }
    planned += simulation.planned_operations();
  }
  EXPECT_GT(planned, 0U);
}

TEST_P(Joins, AMismatchAmongThoseWhoGoOnFailsThere) {
  if (size() < 3) GTEST_SKIP() << "two ranks have to differ while a third has joined";
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    NamedSimulation simulation({.size = size(), .seed = seed});
    for (int32_t rank = 0; rank < size(); ++rank) {
      const bool goes_on = rank < size() - 1;
      if (goes_on) {
        simulation.submit(rank, entry("differs", rank == 0 ? 5 : 6));
        simulation.wait(rank, "differs");
      }
      add_epoch(simulation, rank, goes_on ? 2 : 0, 4);
    }
    ASSERT_TRUE(simulation.run());
    for (int32_t rank = 0; rank < size() - 1; ++rank)
      EXPECT_THAT(simulation.failures(rank), SizeIs(1));
    expect_joins(simulation, size(), 1);
  }
}

TEST(Join, IsSaidAfterWhatWasSubmittedAndRefusesMore) {
  NamedQueue queue;
  ASSERT_TRUE(queue.submit(entry("a"), 1, {}).ok());
  ASSERT_TRUE(queue.join(2).ok());
  EXPECT_EQ(queue.join(3).code(), Code::kAlreadyExists);
  EXPECT_EQ(queue.submit(entry("b"), 4, {}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(decode_announcement(*queue.take_announcement())->kind, Announcement::Kind::kReady);
  const auto said = decode_announcement(*queue.take_announcement());
  EXPECT_EQ(said->kind, Announcement::Kind::kJoin);
  EXPECT_FALSE(queue.take_announcement());
}

TEST(Join, GoesOnWithoutItsCallerWhoMayComeBack) {
  NamedQueue queue;
  Negotiator negotiator({0});
  ASSERT_TRUE(queue.join(1).ok());
  queue.forget_join();
  EXPECT_TRUE(queue.joins());
  ASSERT_TRUE(queue.join(2).ok());
  while (const auto said = queue.take_announcement())
    ASSERT_TRUE(negotiator.receive(0, *said).ok());
  while (const auto decision = negotiator.take_decision())
    ASSERT_TRUE(queue.receive(*decision).ok());
  const auto start = queue.take_start();
  ASSERT_TRUE(start);
  EXPECT_EQ(start->parts[0].token, 2U);
  EXPECT_EQ(start->last_joined, 0);
  EXPECT_FALSE(queue.joins());
  EXPECT_TRUE(queue.submit(entry("a"), 3, {}).ok());
}

TEST(Join, ThatEndsWithoutItsCallerIsKeptForTheNextCall) {
  NamedQueue queue;
  Negotiator negotiator({0});
  ASSERT_TRUE(queue.join(1).ok());
  queue.forget_join();
  while (const auto said = queue.take_announcement())
    ASSERT_TRUE(negotiator.receive(0, *said).ok());
  while (const auto decision = negotiator.take_decision())
    ASSERT_TRUE(queue.receive(*decision).ok());
  EXPECT_TRUE(queue.take_start()->gives_identity);
  EXPECT_EQ(queue.submit(entry("a"), 3, {}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(queue.take_missed_join(), 0);
  EXPECT_FALSE(queue.take_missed_join());
  EXPECT_TRUE(queue.submit(entry("a"), 3, {}).ok());
}

TEST(Join, OutOfPlaceIsRefused) {
  const auto refused_by_member = [](Decision decision) {
    NamedQueue queue;
    EXPECT_FALSE(queue.receive(encode(decision)).ok());
    EXPECT_FALSE(queue.take_start());
  };
  refused_by_member({.kind = Decision::Kind::kJoined, .rank = 0});
  refused_by_member({.kind = Decision::Kind::kOver, .rank = 0});
  refused_by_member({.absent = 1, .run = {{.cached = NamedRef::kNone, .entry = entry("a")}}});

  Negotiator negotiator({0, 1});
  const Bytes join = encode(Announcement{.kind = Announcement::Kind::kJoin});
  EXPECT_TRUE(negotiator.receive(1, join).ok());
  EXPECT_FALSE(negotiator.receive(1, join).ok());
  const Bytes ready =
      encode(Announcement{.ready = {{.cached = NamedRef::kNone, .entry = entry("a")}}});
  EXPECT_FALSE(negotiator.receive(1, ready).ok());
}

}  // namespace
}  // namespace corro::named
