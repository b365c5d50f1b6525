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
  EXPECT_THAT(add({0}), ElementsAre(100));
  EXPECT_THAT(add({3}), ElementsAre()) << "c is before d";
  EXPECT_THAT(add({2}), ElementsAre(101, 102));
}

TEST_F(Followed, StartsNothingOnceFrozen) {
  plan_.engage(100);
  add({0, 1});
  plan_.freeze();
  EXPECT_EQ(plan_.next_op(), 101U);
  EXPECT_THAT(add({2}), ElementsAre());
  EXPECT_TRUE(plan_.frozen());
}

}  // namespace
}  // namespace corro::named
