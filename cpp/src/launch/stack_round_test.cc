#include "launch/stack_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using testing::HasSubstr;

TEST(StackRound, WaitsOnlyForRanksThatRun) {
  std::vector<diagnosis::RankEnd> ends(3);
  StackRound round;
  round.begin(ends, Time{});
  EXPECT_EQ(round.due(), Time{}) << "nobody is there to answer";
  EXPECT_THAT(round.finish(), HasSubstr("ranks 0-2: not started yet"));

  for (int rank = 1; rank < 3; ++rank)
    ends[static_cast<size_t>(rank)] = {.rank = rank, .pid = 4711, .ended = rank == 2};
  round.begin(ends, Time{});
  EXPECT_GT(round.due(), Time{});
  round.take(1, {.text = "", .missing = "says nothing"});
  EXPECT_EQ(round.due(), Time{});
  const std::string text = round.finish();
  EXPECT_FALSE(round.running());
  for (const char* line : {"rank 0: not started yet", "rank 1: says nothing", "rank 2: has end"})
    EXPECT_THAT(text, HasSubstr(line));
}

}  // namespace
}  // namespace corro::launch
