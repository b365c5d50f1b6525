#include "runtime/ladder.h"

#include <gtest/gtest.h>

namespace corro::runtime {
namespace {

TEST(CallerLadder, SpinsOnlyWhereEveryRankHasACoreOfItsOwn) {
  EXPECT_GT(caller_ladder(std::nullopt, 2, 2).spins, 0U);
  EXPECT_EQ(caller_ladder(std::nullopt, 3, 2).spins, 0U);
  EXPECT_EQ(caller_ladder(std::nullopt, 2, 1.5).spins, 0U) << "a quota below a core a rank";
  EXPECT_EQ(caller_ladder(std::nullopt, 1, 0.5).spins, 0U);
  EXPECT_GT(caller_ladder(std::nullopt, 3, 2).yields, 0U);
}

TEST(CallerLadder, TheUserDecides) {
  EXPECT_EQ(caller_ladder(Duration::zero(), 1, 4).spins, 0U);
  EXPECT_EQ(caller_ladder(std::chrono::microseconds(100), 8, 2).spins, 2000U);
}

}  // namespace
}  // namespace corro::runtime
