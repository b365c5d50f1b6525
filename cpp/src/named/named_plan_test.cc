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

/// Operations a and b share a bucket, c and d do not: they are in different segments. Here b comes
/// before a.
class Followed : public testing::Test {
 protected:
  static std::vector<NamedEntry> entries() {
    std::vector<NamedEntry> entries;
    for (const char* name : {"a", "b", "c", "d"}) {
      entries.push_back(
          {name, {.signature = {.kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = 4}}});
    }
    return entries;
  }
  /// Adds these, and returns what starts.
  std::vector<uint64_t> add(const std::vector<uint32_t>& indices) {
    for (const uint32_t index : indices) plan_.add(index);
    return starts();
  }
  std::vector<uint64_t> starts() {
    std::vector<uint64_t> started;
    while (const auto op = plan_.take_start()) started.push_back(*op);
    return started;
  }

  FollowedPlan plan_{1, entries(), {2, 1, 1}, {}, {1, 0, 2, 3}};
};

TEST_F(Followed, StartsBucketsInPlanOrderWhenAllOfThemIsHere) {
  plan_.engage(100);
  EXPECT_TRUE(plan_.take_turn(1));
  EXPECT_THAT(add({1}), ElementsAre());
  EXPECT_FALSE(plan_.take_turn(2)) << "a is next here";
  EXPECT_TRUE(plan_.take_turn(0));
  EXPECT_EQ(plan_.op_of(0), 100U);
  EXPECT_THAT(add({0}), ElementsAre(100));
  EXPECT_EQ(plan_.op_of(0), 103U) << "its next instance belongs to the next round";
  EXPECT_EQ(plan_.op_of(2), 101U);
  EXPECT_THAT(add({3}), ElementsAre()) << "c is before d";
  EXPECT_THAT(add({2}), ElementsAre(101, 102));
}

TEST_F(Followed, StartsNothingOnceFrozen) {
  plan_.engage(100);
  add({0, 1});
  EXPECT_EQ(plan_.freeze(), 101U);
  EXPECT_THAT(add({2}), ElementsAre());
  EXPECT_TRUE(plan_.frozen());
}

TEST_F(Followed, EndsAtTheCut) {
  plan_.engage(100);
  add({0, 1});
  plan_.freeze();
  add({2, 3});
  ASSERT_TRUE(plan_.leave(104).ok()) << "round 0, and a, b of round 1";
  EXPECT_THAT(starts(), ElementsAre(101, 102));
  EXPECT_TRUE(plan_.still_runs(1));
  EXPECT_FALSE(plan_.still_runs(2));
  EXPECT_FALSE(plan_.over());
  EXPECT_THAT(add({1, 0}), ElementsAre(103));
  EXPECT_TRUE(plan_.over());
}

TEST_F(Followed, IsOverAtOnceWhenNothingIsLeft) {
  plan_.engage(100);
  add({0, 1});
  plan_.freeze();
  plan_.add(2);
  ASSERT_TRUE(plan_.leave(101).ok());
  EXPECT_TRUE(plan_.over());
  EXPECT_THAT(starts(), ElementsAre());
}

TEST_F(Followed, CannotEndBeforeWhatHasStarted) {
  plan_.engage(100);
  add({0, 1, 2});
  plan_.freeze();
  for (const uint64_t cut : {uint64_t{0}, uint64_t{101}, UINT64_MAX})
    EXPECT_EQ(plan_.leave(cut).code(), Code::kFailedPrecondition) << cut;
  EXPECT_TRUE(plan_.frozen());
  EXPECT_TRUE(plan_.leave(102).ok());
}

TEST_F(Followed, PassesFailedOperationsOver) {
  plan_.engage(0);
  plan_.fail(2);
  EXPECT_EQ(plan_.op_of(2), 4U);
  EXPECT_THAT(starts(), ElementsAre());
  EXPECT_THAT(add({0, 1}), ElementsAre(0));
  EXPECT_THAT(add({3}), ElementsAre(2));
  EXPECT_THAT(add({0, 1}), ElementsAre(3));
  EXPECT_THAT(add({2}), ElementsAre(4));
}

TEST_F(Followed, PassesOverAsManyInstancesAsHaveFailed) {
  plan_.engage(0);
  plan_.add(0);
  plan_.fail(0);
  plan_.fail(0);
  EXPECT_EQ(plan_.op_of(0), 6U);
  EXPECT_THAT(add({0, 1, 2, 3}), ElementsAre(1, 2));
  EXPECT_THAT(add({2, 3}), ElementsAre(4, 5, 6));
}

}  // namespace
}  // namespace corro::named
