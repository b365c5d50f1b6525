#include "named/named_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace corro::named {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void add(RoundFinder& finder, const std::vector<std::vector<uint32_t>>& runs) {
  for (const auto& run : runs) {
    for (const uint32_t number : run) finder.add(number);
    finder.end_run();
  }
}

TEST(RoundFinder, FindsARoundThatRepeats) {
  RoundFinder finder;
  add(finder, {{9}, {0, 1, 2}});
  EXPECT_EQ(finder.rounds(), 0U);
  add(finder, {{0, 1}});
  EXPECT_FALSE(finder.at_boundary());
  add(finder, {{2}});
  EXPECT_TRUE(finder.at_boundary());
  EXPECT_EQ(finder.rounds(), 2U);
  EXPECT_EQ(finder.length(), 3U);
  add(finder, {{0, 1, 2}});
  EXPECT_EQ(finder.rounds(), 3U);
}

TEST(RoundFinder, CutsSegmentsOnlyWhereBothRoundsWereCut) {
  RoundFinder finder;
  add(finder, {{0}, {1, 2}, {3}, {0}, {1}, {2}, {3}});
  EXPECT_THAT(finder.segments(), ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
}

TEST(RoundFinder, StartsAgainWhenTheRoundBreaks) {
  RoundFinder finder;
  add(finder, {{0, 1, 2, 0, 1, 2, 0, 7}});
  EXPECT_EQ(finder.rounds(), 0U);
  add(finder, {{1, 2, 0, 7, 1, 2, 0, 7}});
  EXPECT_EQ(finder.length(), 4U);
  EXPECT_TRUE(finder.at_boundary());
}

TEST(RoundFinder, SeesThroughANameThatOccursTwiceButMakesNoPlanOfIt) {
  RoundFinder finder;
  add(finder, {{0, 1, 0, 2, 0, 1, 0, 2, 0, 1, 0, 2}});
  EXPECT_EQ(finder.length(), 4U);
  add(finder, {{0}});
  ASSERT_TRUE(finder.at_boundary());
  EXPECT_THAT(finder.segments(), IsEmpty());
}

TEST(RoundFinder, OperationsWithoutANumberMakeNoRound) {
  RoundFinder finder;
  for (int i = 0; i < 5; ++i) add(finder, {{0, NamedRef::kNone}});
  EXPECT_LT(finder.rounds(), 2U);
}

TEST(RoundFinder, ForgetsWhatIsTooLongAgo) {
  RoundFinder finder;
  for (uint32_t i = 0; i < 5 * RoundFinder::kMaxRound; ++i) finder.add(i);
  finder.add(0);
  EXPECT_EQ(finder.rounds(), 0U);
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < RoundFinder::kMaxRound; ++i) finder.add(1'000'000 + i);
  }
  EXPECT_EQ(finder.rounds(), 3U);
  EXPECT_EQ(finder.length(), RoundFinder::kMaxRound);
}

FollowedPlan make_plan() {
  std::vector<NamedEntry> entries;
  for (const char* name : {"a", "b", "c", "d"}) {
    entries.push_back(
        {name, {.signature = {.kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = 4}}});
  }
  // b comes first here; a and b share a bucket, c and d do not: they are in different segments.
  return FollowedPlan(1, entries, {2, 1, 1}, {}, {1, 0, 2, 3});
}

TEST(FollowedPlan, StartsBucketsInPlanOrderWhenAllOfThemIsHere) {
  FollowedPlan plan = make_plan();
  plan.engage(100);
  EXPECT_TRUE(plan.take_turn(1));
  plan.add(1);
  EXPECT_FALSE(plan.next_complete());
  EXPECT_FALSE(plan.take_turn(2)) << "a is next here";
  EXPECT_TRUE(plan.take_turn(0));
  plan.add(0);
  ASSERT_TRUE(plan.next_complete());
  EXPECT_EQ(plan.next_op(), 100U);
  EXPECT_EQ(plan.op_of(0), 100U);
  plan.start_next();
  EXPECT_EQ(plan.op_of(0), 103U) << "its next instance belongs to the next round";
  EXPECT_EQ(plan.op_of(2), 101U);
}

TEST(FollowedPlan, FailedOperationsArePassedOver) {
  FollowedPlan plan = make_plan();
  plan.engage(0);
  plan.fail(1);
  plan.skip_failed();
  EXPECT_EQ(plan.next_op(), 0U);
  EXPECT_EQ(plan.op_of(2), 4U);
  plan.add(0);
  plan.add(1);
  plan.start_next();
  plan.skip_failed();
  EXPECT_EQ(plan.next_op(), 2U);
}

}  // namespace
}  // namespace corro::named
