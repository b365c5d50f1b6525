#include "diagnosis/hang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::diagnosis {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

Time at(Duration since) { return {since}; }

/// A rank that has done `step` steps and waits for another one since second 100; -1: for nobody.
RankEnd rank_in(int rank, int waiting_for, uint64_t step = 0) {
  RankEnd end{.rank = rank, .pid = 1000 + rank};
  end.flight = obs::ProcessSnapshot{.rank = rank, .size = 4, .pid = 2000 + rank, .step = step};
  obs::OpSnapshot op;
  op.sequence = 1;
  op.op = {.op_id = 9, .kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = 10};
  op.phase = waiting_for >= 0 ? obs::Phase::kExchange : obs::Phase::kDone;
  op.waiting_for = waiting_for;
  op.queued_ns = op.started_ns = 100'000'000'000;
  op.done_ns = waiting_for >= 0 ? 0 : 100'000'000'000;
  end.flight->recent.push_back(op);
  return end;
}

TEST(HangWatch, SaysWhoWaitsForWhomInWhatSinceWhenAndWhatThatOneDoes) {
  HangWatch watch;
  const std::vector ranks = {rank_in(0, 2), rank_in(1, 2), rank_in(2, -1, 7)};
  EXPECT_EQ(watch.look(ranks, at(seconds(104))).text,
            "ranks 0-1 wait for rank 2 in allreduce #10 (f32 x 10) for 4.0 s; rank 2: step 7, last "
            "operation was allreduce #10 (f32 x 10), done 4.0 s before");
}

TEST(HangWatch, NobodyIsNamedForAShortWait) {
  HangWatch watch;
  const std::vector ranks = {rank_in(0, 1), rank_in(1, -1)};
  EXPECT_EQ(watch.look(ranks, at(milliseconds(101'900))).text, "");
  EXPECT_NE(watch.look(ranks, at(milliseconds(102'100))).text, "");
}

TEST(HangWatch, WhereStepsAreLongTenOfThemAreWaitedFor) {
  HangWatch watch;
  for (int step = 1; step <= 5; ++step) {
    const std::vector ranks = {rank_in(0, -1, static_cast<uint64_t>(step)), rank_in(1, -1)};
    EXPECT_EQ(watch.look(ranks, at(seconds(90 + 3 * step))).text, "");  // 3 s each
  }
  const std::vector ranks = {rank_in(0, 1, 5), rank_in(1, -1, 5)};
  EXPECT_EQ(watch.look(ranks, at(seconds(129))).text, "");
  EXPECT_THAT(watch.look(ranks, at(seconds(131))).text, HasSubstr("rank 0 waits for rank 1"));
}

TEST(HangWatch, TheUserSaysHowLongIsLong) {
  const std::vector ranks = {rank_in(0, 1), rank_in(1, -1)};
  HangWatch patient(seconds(30));
  EXPECT_EQ(patient.look(ranks, at(seconds(129))).text, "");
  EXPECT_NE(patient.look(ranks, at(seconds(131))).text, "");
  HangWatch silent(Duration::zero());
  EXPECT_EQ(silent.look(ranks, at(seconds(9999))).text, "");
}

TEST(HangWatch, AnOperationThatWaitsForItsNameHasNoNumber) {
  std::vector ranks = {rank_in(0, 1), rank_in(1, -1)};
  ranks[0].flight->recent[0].op.op_id = obs::kNoOpId;
  ranks[0].flight->recent[0].name = "x";
  EXPECT_THAT(HangWatch().look(ranks, at(seconds(104))).text,
              HasSubstr("rank 0 waits for rank 1 in allreduce 'x' (f32 x 10) for 4.0 s"));
}

TEST(HangWatch, NamesTheEndOfAChain) {
  HangWatch watch;
  const std::vector ranks = {rank_in(0, 2), rank_in(1, 2), rank_in(2, 3), rank_in(3, -1)};
  EXPECT_THAT(watch.look(ranks, at(seconds(104))).text, HasSubstr("rank 2 waits for rank 3"));
}

TEST(HangWatch, RanksThatWaitInACircleAreNamedToo) {
  HangWatch watch;
  EXPECT_THAT(watch.look(std::vector{rank_in(0, 1), rank_in(1, 0)}, at(seconds(104))).text,
              HasSubstr("waits for rank"));
}

TEST(HangWatch, OfTheAwaitedRankItSaysThatItIsStoppedOrGoneOrNotThere) {
  HangWatch watch;
  std::vector ranks = {rank_in(0, 1), rank_in(1, -1)};
  ranks[1].paused = true;
  EXPECT_THAT(watch.look(ranks, at(seconds(104))).text,
              HasSubstr("rank 1: stopped; kill -CONT 2001"));
  ranks[1].paused = false;
  ranks[1].flight.reset();
  EXPECT_THAT(watch.look(ranks, at(seconds(104))).text, HasSubstr("pid 1001 has not called"));
  ranks[1].ended = true;
  EXPECT_THAT(watch.look(ranks, at(seconds(104))).text, HasSubstr("rank 1: it has ended"));
}

TEST(HangWatch, ARankThatHasEndedOrIsUnknownWaitsForNobody) {
  HangWatch watch;
  std::vector ranks = {rank_in(0, 1), rank_in(1, -1)};
  ranks[0].ended = true;
  EXPECT_EQ(watch.look(ranks, at(seconds(104))).text, "");
  EXPECT_EQ(watch.look(std::vector{rank_in(0, 7)}, at(seconds(104))).text, "");
  EXPECT_EQ(watch.look({}, at(seconds(104))).text, "");
}

}  // namespace
}  // namespace corro::diagnosis
