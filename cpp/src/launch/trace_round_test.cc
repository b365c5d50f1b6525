#include "launch/trace_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using testing::HasSubstr;

TEST(TraceRound, IsOverOnceAllThatRunHaveAnswered) {
  std::vector<diagnosis::RankEnd> ends(4);
  for (int rank = 1; rank < 4; ++rank)
    ends[static_cast<size_t>(rank)] = {.rank = rank, .pid = 4711, .ended = rank == 2};
  TraceRound round;
  EXPECT_FALSE(round.running());
  round.begin(ends, Time{});
  round.take(1, obs::ProcessTrace{.step = 3, .operations = {}});
  round.take(1, std::nullopt);  // Once is enough.
  EXPECT_GT(round.due(), Time{});
  round.take(3, std::nullopt);
  EXPECT_EQ(round.due(), Time{});
  const std::string trace = round.finish(Time{});
  EXPECT_FALSE(round.running());
  EXPECT_THAT(trace,
              HasSubstr("rank 0: not started yet; rank 2: has ended; rank 3: has not called"));
  EXPECT_THAT(trace, HasSubstr(R"({"name":"rank 1"})"));
}

}  // namespace
}  // namespace corro::launch
