#include "launch/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "launch/conclusion.h"

namespace corro::launch {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int exited(int code) { return code << 8; }
constexpr int killed(int signal) { return signal; }

RankEnd end_of(int rank, int ms, int status, const std::string& error = "") {
  RankEnd end;
  end.rank = rank;
  end.pid = 1000 + rank;
  end.ended = true;
  end.when = {milliseconds(ms)};
  end.status = status;
  end.crash.error = error;
  return end;
}

RankEnd stopped(int rank, int ms, const std::string& error = "") {
  RankEnd end = end_of(rank, ms, killed(SIGTERM), error);
  end.stopped = true;
  return end;
}

obs::ProcessSnapshot flight_with(obs::Phase phase, Code code, int waiting_for) {
  obs::ProcessSnapshot flight;
  flight.step = 7;
  obs::OpSnapshot op;
  op.sequence = 1;
  op.op = {.op_id = 16, .kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = 1000};
  op.phase = phase;
  op.code = code;
  op.waiting_for = waiting_for;
  flight.recent.push_back(op);
  return flight;
}

constexpr const char* kLost = "corro.RankLostError: allreduce: rank 2 was lost (in reduce)";

TEST(DecideCulprit, NobodyFailedIfAllEndedWell) {
  const std::vector<RankEnd> ends = {end_of(0, 1, exited(0)), end_of(1, 2, exited(0))};
  EXPECT_EQ(decide_culprit(ends).culprit, -1);
}

TEST(DecideCulprit, TheFirstInTimeIsToBlame) {
  const std::vector<RankEnd> ends = {end_of(0, 20, exited(1), "OSError: b"),
                                     end_of(1, 10, exited(3), "ValueError: a"), stopped(2, 30)};
  const Verdict verdict = decide_culprit(ends);
  EXPECT_EQ(verdict.culprit, 1);
  EXPECT_THAT(verdict.victims, ElementsAre(0, 2));
  EXPECT_THAT(verdict.alike, IsEmpty());
}

TEST(DecideCulprit, AKilledRankBeatsThoseThatReportItsLoss) {
  const std::vector<RankEnd> ends = {end_of(0, 10, exited(1), kLost),
                                     end_of(1, 11, exited(1), kLost),
                                     end_of(2, 12, killed(SIGKILL))};
  const Verdict verdict = decide_culprit(ends);
  EXPECT_EQ(verdict.culprit, 2);
  EXPECT_THAT(verdict.victims, ElementsAre(0, 1));
}

TEST(DecideCulprit, AFailedOperationInTheRecorderMakesAWitnessToo) {
  std::vector<RankEnd> ends = {end_of(0, 10, exited(1), "RuntimeError: backward failed"),
                               end_of(1, 12, exited(1), "ValueError: mine")};
  ends[0].flight = flight_with(obs::Phase::kFailed, Code::kUnavailable, 1);
  EXPECT_TRUE(is_witness(ends[0]));
  EXPECT_EQ(named_by(ends[0]), 1);
  EXPECT_EQ(decide_culprit(ends).culprit, 1);
}

TEST(DecideCulprit, ARankThatSaidWhyAndWasStoppedOnItsWayOutIsToBlame) {
  const std::vector<RankEnd> ends = {end_of(0, 10, exited(1), kLost),
                                     end_of(1, 10, exited(1), kLost),
                                     stopped(2, 500, "ValueError: the cause")};
  EXPECT_EQ(decide_culprit(ends).culprit, 2);
}

TEST(DecideCulprit, IfTheLostRankEndedWellTheFirstWitnessFailedAndTheAbsentIsNamed) {
  const std::vector<RankEnd> ends = {end_of(0, 10, exited(1), kLost),
                                     end_of(1, 11, exited(1), kLost), end_of(2, 1, exited(0))};
  const Verdict verdict = decide_culprit(ends);
  EXPECT_EQ(verdict.culprit, 0);
  EXPECT_EQ(verdict.absent, 2);
}

TEST(DecideCulprit, RanksWithTheSameErrorFailedAlike) {
  const std::vector<RankEnd> ends = {
      end_of(0, 10, exited(1), "ModuleNotFoundError: No module named 'x'"),
      end_of(1, 11, exited(1), "ModuleNotFoundError: No module named 'x'"), stopped(2, 300)};
  const Verdict verdict = decide_culprit(ends);
  EXPECT_EQ(verdict.culprit, 0);
  EXPECT_THAT(verdict.alike, ElementsAre(1));
  EXPECT_THAT(verdict.victims, ElementsAre(2));
}

TEST(NamedBy, TakesTheLastRankInTheMessageThatIsNotItself) {
  EXPECT_EQ(named_by(end_of(3, 1, exited(1),
                            "RankLostError: rank 3 of group dp: no data from "
                            "rank 2 for 30 s")),
            2);
  EXPECT_EQ(named_by(end_of(3, 1, exited(1), "RankLostError: rank 3 has a problem")), -1);
}

TEST(ExitCode, IsTheStatusOr128AndTheSignal) {
  EXPECT_EQ(exit_code(exited(7)), 7);
  EXPECT_EQ(exit_code(killed(SIGKILL)), 137);
}

const ReportContext kContext{
    .host = "node7", .log_dir = "corro-runs/x", .now = {milliseconds(900)}};

Conclusion conclude_ends(const std::vector<RankEnd>& ends, std::optional<int> asked = {}) {
  return conclude({.ranks = ends, .asked = asked, .timeout = {}, .width = 200}, kContext);
}

TEST(Conclude, SaysNothingWhenAllWentWell) {
  const std::vector<RankEnd> ends = {end_of(0, 1, exited(0))};
  const Conclusion end = conclude_ends(ends);
  EXPECT_EQ(end.exit, 0);
  EXPECT_EQ(end.text, "");
  EXPECT_FALSE(end.failure);
}

TEST(Conclude, EndsWithTheCulpritsStatus) {
  const std::vector<RankEnd> ends = {end_of(0, 5, killed(SIGSEGV)), stopped(1, 100)};
  const Conclusion end = conclude_ends(ends);
  EXPECT_EQ(end.exit, 128 + SIGSEGV);
  EXPECT_THAT(end.text, HasSubstr("SIGSEGV (segmentation fault)"));
}

TEST(Conclude, AnInterruptThatWasAskedForIsNoFailure) {
  const std::vector<RankEnd> ends = {
      end_of(0, 5, killed(SIGINT)), end_of(1, 6, exited(1), "KeyboardInterrupt"),
      end_of(2, 7, exited(1), "corro.RankLostError: rank 0 was lost")};
  const Conclusion end = conclude_ends(ends, SIGINT);
  EXPECT_EQ(end.exit, 130);
  EXPECT_EQ(end.text, "corro: stopped by SIGINT; logs in corro-runs/x\n");
  EXPECT_FALSE(end.failure);
}

TEST(Conclude, AFailureWhileStoppingIsStillAFailure) {
  const std::vector<RankEnd> ends = {end_of(0, 5, killed(SIGTERM)),
                                     end_of(1, 9, exited(1), "OSError: checkpoint: disk full")};
  const Conclusion end = conclude_ends(ends, SIGTERM);
  EXPECT_EQ(end.exit, 1);
  EXPECT_THAT(end.text, HasSubstr("disk full"));
}

TEST(Conclude, RanksThatSaveAndEndWellAfterTermAreASuccess) {
  const std::vector<RankEnd> ends = {end_of(0, 5, exited(0)), end_of(1, 9, exited(0))};
  EXPECT_EQ(conclude_ends(ends, SIGTERM).exit, 0);
}

TEST(Conclude, ATimeoutNamesWhoWasStillRunningAndWhatTheyDid) {
  std::vector<RankEnd> ends = {end_of(0, 5, exited(0)), RankEnd{}, RankEnd{}};
  for (const int rank : {1, 2}) {
    ends[static_cast<size_t>(rank)].rank = rank;
    ends[static_cast<size_t>(rank)].flight =
        flight_with(obs::Phase::kTransfer, Code::kOk, rank == 1 ? 2 : -1);
  }
  const Conclusion end = conclude(
      {.ranks = ends, .asked = {}, .timeout = std::chrono::seconds(30), .width = 200}, kContext);
  EXPECT_EQ(end.exit, 124);
  EXPECT_THAT(end.text, HasSubstr("still running: ranks 1-2"));
  EXPECT_THAT(end.text, HasSubstr("rank 1: step 7, in allreduce #17 (f32 x 1000), phase transfer"));
  EXPECT_THAT(end.text, HasSubstr("waiting for rank 2"));
  ASSERT_TRUE(end.failure);
  EXPECT_EQ(end.failure->rank, 1);
  EXPECT_EQ(end.failure->op, "allreduce");
}

}  // namespace
}  // namespace corro::launch
