#include "diagnosis/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "diagnosis/conclusion.h"

namespace corro::diagnosis {
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
constexpr const char* kGaveUp =
    "corro.TimeoutError: allreduce #2 on rank 0 (phase exchange): waited for rank 2 (by way of "
    "rank "
    "1) for 2 s; its last call on this group was #1 barrier()";

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

TEST(DecideCulprit, ARankThatHadLeftAndWasStoppedOnItsWayOutIsNamedAsAbsent) {
  const std::string left = "corro.RankLostError: allreduce #2: rank 1 has left the job";
  const std::vector<RankEnd> ends = {end_of(0, 10, exited(1), left), stopped(1, 500)};
  const Verdict verdict = decide_culprit(ends);
  EXPECT_EQ(verdict.culprit, 0);
  EXPECT_EQ(verdict.absent, 1);
  EXPECT_EQ(decide_culprit(std::vector{end_of(0, 10, exited(1), kLost), stopped(2, 500)}).absent,
            -1);
}

TEST(DecideCulprit, ALossInHorovodsWordsIsALoss) {
  const std::string lost =
      "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. allreduce "
      "\"allreduce.x\" on rank 0 (phase negotiate): rank 1 has left the job";
  const std::vector<RankEnd> raised = {end_of(0, 10, exited(1), lost),
                                       stopped(1, 500, "KeyError: 'own'")};
  EXPECT_EQ(decide_culprit(raised).culprit, 1);
  const std::vector<RankEnd> left = {end_of(0, 10, exited(1), lost), end_of(1, 1, exited(0))};
  EXPECT_EQ(decide_culprit(left).culprit, 0);
  EXPECT_EQ(decide_culprit(left).absent, 1);
}

TEST(DecideCulprit, ALossThatAFrameworkRaisesAsAnErrorOfItsOwnIsALoss) {
  for (const std::string framework :
       {"ValueError: UNAVAILABLE: ", "jax.errors.JaxRuntimeError: INTERNAL: ",
        "tensorflow.python.framework.errors_impl.UnknownError: Graph execution error: "}) {
    const std::string lost = framework + "allreduce #3 on rank 0: rank 1 has left the job";
    const std::vector<RankEnd> raised = {end_of(0, 10, exited(1), lost),
                                         end_of(1, 300, exited(1), "KeyError: 'my mistake'")};
    EXPECT_EQ(decide_culprit(raised).culprit, 1) << lost;
    const std::vector<RankEnd> left = {end_of(0, 10, exited(1), lost), end_of(1, 1, exited(0))};
    EXPECT_EQ(decide_culprit(left).absent, 1) << lost;
  }
}

TEST(DecideCulprit, ALossIsOneToo) {
  for (const std::string lost :
       {"UNAVAILABLE: allreduce \"x\" on rank 0 (phase negotiate): rank 1 (10.0.0.7:41) was lost: "
        "its process has ended",
        "INTERNAL: allreduce #3 on rank 0: rank 2 gave the group up: rank 1 was lost"}) {
    const RankEnd witness = end_of(0, 10, exited(1), "ValueError: " + lost);
    EXPECT_TRUE(is_witness(witness)) << lost;
    EXPECT_EQ(named_by(witness), 1) << lost;
  }
  EXPECT_FALSE(is_witness(end_of(0, 10, exited(1), "ValueError: the value of rank was lost")));
  EXPECT_FALSE(is_witness(end_of(0, 10, exited(1), "ValueError: rank 1 has data that was lost")));
}

TEST(DecideCulprit, OneThatWasStoppedAndSaidWhyIsToBlameIfAnyOtherRankNamesIt) {
  const std::string left = "ValueError: UNAVAILABLE: allreduce \"x\" on rank 0: ";
  const std::vector<RankEnd> in_turn = {end_of(0, 10, exited(1), left + "rank 2 has left the job"),
                                        stopped(1, 300, "KeyError: 'my mistake'"),
                                        end_of(2, 11, exited(1), left + "rank 1 has left the job")};
  EXPECT_EQ(decide_culprit(in_turn).culprit, 1);
  EXPECT_THAT(decide_culprit(in_turn).victims, ElementsAre(0, 2));
  const std::vector<RankEnd> waiting = {end_of(0, 10, exited(1), kGaveUp), in_turn[1], in_turn[2]};
  EXPECT_EQ(decide_culprit(waiting).culprit, 1);
  EXPECT_THAT(decide_culprit(waiting).waited, IsEmpty());
  const std::vector<RankEnd> not_named = {in_turn[0], in_turn[1], end_of(2, 1, exited(0))};
  EXPECT_EQ(decide_culprit(not_named).absent, 2);
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

TEST(DecideCulprit, AnErrorThatTorchPassedOnOrThatCameTooLateIsStillTheSame) {
  const std::vector<RankEnd> ends = {end_of(0, 10, exited(1), "corro.MismatchError: a"),
                                     end_of(1, 11, exited(1), "MismatchError: a"),
                                     stopped(2, 300, "corro.MismatchError: a, on rank 2"),
                                     stopped(3, 300, "KeyError: b")};
  const Verdict verdict = decide_culprit(ends);
  EXPECT_THAT(verdict.alike, ElementsAre(1, 2));
  EXPECT_THAT(verdict.victims, ElementsAre(3));
}

TEST(DecideCulprit, AnErrorThatAStoppedRankHadHandledIsNotTheSame) {
  const std::vector<RankEnd> ends = {end_of(0, 10, exited(1), "ValueError: the real one"),
                                     stopped(1, 300, "ValueError: a handled one"),
                                     stopped(2, 300, "ValueError: the real one")};
  const Verdict verdict = decide_culprit(ends);
  EXPECT_THAT(verdict.alike, ElementsAre(2));
  EXPECT_THAT(verdict.victims, ElementsAre(1));
}

RankEnd still_there(int rank, int ms) {
  RankEnd end = stopped(rank, ms);
  end.at = {"train.py", 5, "load", "time.sleep(9)"};
  return end;
}

TEST(DecideCulprit, AtADeadlineItIsTheRankThatDidNotCome) {
  const std::vector<RankEnd> ends = {
      end_of(0, 11, exited(1), kGaveUp), end_of(1, 10, exited(1), kGaveUp), still_there(2, 300),
      stopped(3, 301), end_of(4, 12, exited(1), "corro.RankLostError: rank 0 has left the job")};
  const Verdict verdict = decide_culprit(ends);
  EXPECT_EQ(verdict.culprit, 2);
  EXPECT_THAT(verdict.waited, ElementsAre(1, 0));
  EXPECT_THAT(verdict.victims, ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(verdict.alike, IsEmpty());
}

TEST(DecideCulprit, ARankThatCameTooLateIsTheMissingOne) {
  const std::vector<RankEnd> ends = {
      end_of(0, 10, exited(1), kGaveUp),
      end_of(2, 15, exited(1), "corro.RankLostError: allreduce #2: rank 0 has left the job")};
  EXPECT_EQ(decide_culprit(ends).culprit, 2);
  EXPECT_THAT(decide_culprit(ends).waited, ElementsAre(0));
}

TEST(DecideCulprit, ALateRankThatIsToldSoIsTheMissingOne) {
  const std::vector<RankEnd> ends = {
      end_of(
          0, 15, exited(1),
          "corro.TimeoutError: allreduce: rank 0 was late: rank 1 waited for it for 2 s; its last "
          "call on this group was #1 barrier()"),
      end_of(
          1, 10, exited(1),
          "corro.TimeoutError: allreduce #2 on rank 1 (phase exchange): waited for rank 0 for 2 s"),
      end_of(2, 11, exited(1),
             "corro.TimeoutError: allreduce #2 on rank 2 (phase exchange): rank 0 was late: rank 1 "
             "waited for it for 2 s")};
  const Verdict verdict = decide_culprit(ends);
  EXPECT_EQ(verdict.culprit, 0);
  EXPECT_THAT(verdict.waited, ElementsAre(1, 2));
}

TEST(DecideCulprit, ALateRankMayEndWellWithWhatTheOthersHadSent) {
  const std::vector<RankEnd> late = {end_of(0, 10, exited(1), kGaveUp), end_of(2, 15, exited(0))};
  EXPECT_EQ(decide_culprit(late).culprit, 2);
  EXPECT_THAT(decide_culprit(late).waited, ElementsAre(0));
  const std::vector<RankEnd> gone = {end_of(0, 10, exited(1), kGaveUp), end_of(2, 5, exited(0))};
  EXPECT_EQ(decide_culprit(gone).culprit, 0);
  EXPECT_EQ(decide_culprit(gone).absent, 2);
}

TEST(DecideCulprit, WhoOnlyWaitedForTheMissingOneIsNotIt) {
  const std::vector<RankEnd> ends = {
      end_of(0, 10, exited(1), "corro.TimeoutError: recv #1 on rank 0: waited for rank 1 for 2 s"),
      end_of(1, 11, exited(1), "corro.TimeoutError: recv #1 on rank 1: waited for rank 2 for 2 s"),
      still_there(2, 300)};
  EXPECT_EQ(decide_culprit(ends).culprit, 2);
  EXPECT_THAT(decide_culprit(ends).waited, ElementsAre(0, 1));
}

TEST(DecideCulprit, RanksThatWaitedInACircleFailedThemselves) {
  const std::vector<RankEnd> ends = {
      end_of(0, 10, exited(1), "corro.TimeoutError: recv #1 on rank 0: waited for rank 1 for 2 s"),
      end_of(1, 11, exited(1), "corro.TimeoutError: recv #1 on rank 1: waited for rank 0 for 2 s")};
  const Verdict verdict = decide_culprit(ends);
  EXPECT_EQ(verdict.culprit, 0);
  EXPECT_THAT(verdict.waited, IsEmpty());
  EXPECT_THAT(verdict.alike, ElementsAre(1));
}

const ReportContext kContext{
    .host = "node7", .log_dir = "corro-runs/x", .now = {milliseconds(900)}};

Conclusion conclude_ends(const std::vector<RankEnd>& ends, std::optional<int> asked = {}) {
  return conclude({.ranks = ends, .asked = asked, .timeout = {}, .width = 200}, kContext);
}

/// It waited in this operation for so many seconds.
RankEnd waited_in(const std::string& name, RankEnd end, Code code, int waiting_for,
                  uint64_t waited) {
  end.flight = flight_with(obs::Phase::kFailed, code, waiting_for);
  obs::OpSnapshot& op = end.flight->recent[0];
  op.name = name;
  op.queued_ns = 5;
  op.done_ns = op.queued_ns + waited * 1'000'000'000;
  return end;
}

TEST(DecideCulprit, RanksThatWaitedInDifferentOperationsAreToldSo) {
  const auto waiter = [](int rank) {
    return waited_in("a",
                     end_of(rank, 10 + rank, exited(1),
                            "ValueError: DEADLINE_EXCEEDED: allreduce \"a\" on rank 0 (phase "
                            "negotiate): waited for 4 s: not submitted by rank 1"),
                     Code::kDeadlineExceeded, 1, 4);
  };
  const std::string left =
      "jax.errors.JaxRuntimeError: UNAVAILABLE: allreduce \"b\" on rank 1 (phase negotiate): rank "
      "0 has left the job";
  for (const RankEnd& end : {end_of(1, 20, exited(1), left), stopped(1, 300, left)}) {
    const auto ends = [&](const std::string& name, int waiting_for, uint64_t waited) {
      return std::vector<RankEnd>{
          waiter(0), waited_in(name, end, Code::kUnavailable, waiting_for, waited), waiter(2)};
    };
    EXPECT_EQ(decide_culprit(ends("b", 0, 3)).culprit, 0);
    EXPECT_EQ(decide_culprit(ends("b", 0, 3)).elsewhere, 1);
    EXPECT_EQ(decide_culprit(ends("b", 2, 3)).elsewhere, 1) << "it waited for another one of them";
    const std::string text = conclude_ends(ends("b", 0, 3)).text;
    EXPECT_THAT(text, HasSubstr("others rank 1 waited in allreduce #17 'b' (f32 x 1000)\n"));
    EXPECT_THAT(text, HasSubstr("do     make every rank call the same operations in the same order,"
                                " or join() when it has no more batches\n"));
    for (const auto& late : {ends("a", 0, 3), ends("b", 0, 0), ends("b", 7, 3)}) {
      EXPECT_EQ(decide_culprit(late).culprit, 1);
      EXPECT_EQ(decide_culprit(late).elsewhere, -1);
      EXPECT_THAT(decide_culprit(late).waited, ElementsAre(0, 2));
    }
  }
}

TEST(DecideCulprit, ADeadlineThatAFrameworkRaisesAsAnErrorOfItsOwnIsADeadline) {
  const std::string late =
      "tensorflow.python.framework.errors_impl.DeadlineExceededError: Graph execution error: "
      "allreduce \"x\" on rank 0 (phase negotiate): waited for 4 s: not submitted by rank 1";
  EXPECT_TRUE(gave_up(end_of(0, 10, exited(1), late)));
  EXPECT_EQ(awaited_by(end_of(0, 10, exited(1), late)), 1);
  EXPECT_FALSE(gave_up(end_of(0, 10, exited(1), "DeadlineExceededError: waited for a server")));
}

TEST(DecideCulprit, AnErrorOfItsOwnCountsMoreThanADeadline) {
  const std::vector<RankEnd> ends = {end_of(0, 10, exited(1), kGaveUp),
                                     end_of(1, 15, exited(1), "ValueError: mine"),
                                     still_there(2, 300)};
  EXPECT_EQ(decide_culprit(ends).culprit, 1);
  const std::vector<RankEnd> hanging = {end_of(0, 10, exited(1), kGaveUp),
                                        stopped(2, 300, "ValueError: said, then it hung")};
  EXPECT_EQ(decide_culprit(hanging).culprit, 2);
  EXPECT_THAT(decide_culprit(hanging).waited, IsEmpty());
}

TEST(AwaitedBy, ReadsEveryWayInWhichTheEngineSaysIt) {
  const auto awaited = [](const std::string& text) {
    return awaited_by(end_of(0, 1, exited(1), text));
  };
  EXPECT_EQ(awaited(kGaveUp), 2);
  EXPECT_EQ(awaited("corro.TimeoutError: allreduce \"x\" on rank 0 (phase negotiate): waited for 2 "
                    "s: not submitted by rank 3, 4"),
            3);
  EXPECT_EQ(awaited("corro.TimeoutError: connect: rank 0 of 3 waited 2.0 s, but rank 1 did not "
                    "start: are all ranks running?"),
            1);
  EXPECT_EQ(awaited("corro.TimeoutError: connect: rank 2 of 3 waited 2.0 s, but ranks 0 and 1 did "
                    "not start"),
            -1);
  RankEnd caught = end_of(0, 1, exited(1), "RuntimeError: training failed");
  caught.flight = flight_with(obs::Phase::kFailed, Code::kDeadlineExceeded, 2);
  EXPECT_TRUE(gave_up(caught));
  EXPECT_EQ(awaited_by(caught), 2);
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

TEST(Conclude, AMissingRankHasTheHeadlineAndTheOthersTheStatus) {
  std::vector<RankEnd> ends = {end_of(0, 10, exited(1), kGaveUp), still_there(2, 300),
                               stopped(3, 301)};
  ends[0].crash.where = {"train.py", 12, "main", "allreduce(x)"};
  ends[0].flight = flight_with(obs::Phase::kFailed, Code::kDeadlineExceeded, 2);
  ends[1].flight = flight_with(obs::Phase::kDone, Code::kOk, -1);
  const Conclusion end = conclude_ends(ends);
  EXPECT_EQ(end.exit, 1);
  EXPECT_THAT(end.text, testing::StartsWith("corro: rank 2 kept others waiting on node7 (pid 1002, "
                                            "step 7)\n  what   corro.TimeoutError: "));
  EXPECT_THAT(end.text, HasSubstr("\n  where  train.py:5 in load: time.sleep(9)\n"
                                  "  with   last operation was allreduce #17"));
  EXPECT_THAT(end.text,
              HasSubstr("\n  others rank 0 gave up at train.py:12 in main: allreduce(x); 1 rank "
                        "was stopped because of it (rank 3)\n"));
  EXPECT_THAT(end.text, HasSubstr("rank-2.log\n  do     see why rank 2 "));
  ASSERT_TRUE(end.failure);
  EXPECT_EQ(end.failure->rank, 2);
  EXPECT_EQ(end.failure->op, "allreduce");
  EXPECT_THAT(end.failure->waited, ElementsAre(0));
  EXPECT_THAT(end.failure->victims, ElementsAre(0, 3));
}

TEST(Conclude, AMissingRankThatWasStoppedIsSaidToBe) {
  std::vector<RankEnd> ends = {end_of(0, 10, exited(1), kGaveUp), stopped(2, 300)};
  ends[1].paused = true;
  const Conclusion end = conclude_ends(ends);
  EXPECT_THAT(end.text, HasSubstr("what   stopped by a signal; corro.TimeoutError: "));
  EXPECT_THAT(end.text, HasSubstr("kill -CONT 1002"));
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

TEST(Conclude, AnElasticJobThatCannotGoOnHasFailedThoughNoRankHas) {
  const std::vector<RankEnd> ends = {stopped(0, 5), end_of(1, 9, exited(0))};
  const Conclusion end = conclude(
      {.ranks = ends, .asked = {}, .timeout = {}, .no_way_on = "nobody has joined"}, kContext);
  EXPECT_EQ(end.exit, 1);
  EXPECT_EQ(end.text, "corro: stopped: nobody has joined; logs in corro-runs/x\n");
}

TEST(Conclude, HostsThatWereLostAreNoFailureOfARank) {
  std::vector<RankEnd> ends = {end_of(0, 5, killed(SIGKILL)), stopped(1, 9)};
  const auto by_hosts = [&ends](bool lost_host_last) {
    return conclude({.ranks = ends,
                     .asked = {},
                     .timeout = {},
                     .no_way_on = "0 ranks are left",
                     .lost_host_last = lost_host_last},
                    kContext)
        .by_hosts;
  };
  EXPECT_FALSE(by_hosts(true)) << "rank 0 was killed by itself";
  ends[0].lost = "host node7 was lost";
  EXPECT_TRUE(by_hosts(false));
  ends = {stopped(1, 9)};
  EXPECT_TRUE(by_hosts(true)) << "those that were lost are of an earlier epoch";
  EXPECT_FALSE(by_hosts(false));
}

TEST(Conclude, RanksThatHaveLeftWithTheirHostsAreNoFailure) {
  std::vector<RankEnd> ends = {end_of(0, 5, exited(75)), end_of(1, 6, exited(75))};
  const auto last = [&ends] {
    return conclude({.ranks = ends, .asked = {}, .timeout = {}, .last = true}, kContext);
  };
  EXPECT_EQ(last().exit, 75);
  EXPECT_TRUE(last().by_hosts);
  ends[1] = end_of(1, 6, exited(1), "OSError: no space left");
  EXPECT_EQ(last().exit, 1);
  EXPECT_FALSE(last().by_hosts) << "it could not save what it has";
}

TEST(Conclude, AnElasticJobSaysWhyItHasNotGoneOnWithoutTheRank) {
  const std::vector<RankEnd> ends = {end_of(0, 5, killed(SIGKILL)), stopped(1, 9)};
  const Conclusion end = conclude(
      {.ranks = ends, .asked = {}, .timeout = {}, .no_way_on = "1 rank is left", .width = 80},
      kContext);
  EXPECT_THAT(end.text, HasSubstr("job    1 rank is left\n"));
  EXPECT_THAT(format_json(*end.failure), HasSubstr(R"("job": "1 rank is left")"));
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

TEST(Conclude, AJobThatHasLeftWithItsLastEpochIsToBeStartedAgain) {
  const std::vector<RankEnd> ends = {end_of(0, 5, exited(75)), end_of(1, 9, exited(0))};
  const Conclusion end =
      conclude({.ranks = ends, .asked = SIGTERM, .timeout = {}, .last = true}, kContext);
  EXPECT_EQ(end.exit, 75);
  EXPECT_EQ(
      end.text,
      "corro: all ranks have left after a step, as they were asked to; logs in corro-runs/x\n");
  EXPECT_FALSE(end.failure);
}

TEST(Conclude, AFailureInTheLastEpochIsStillAFailure) {
  const std::vector<RankEnd> ends = {end_of(0, 5, exited(75)),
                                     end_of(1, 9, exited(1), "OSError: checkpoint: disk full")};
  const Conclusion end = conclude(
      {.ranks = ends, .asked = SIGTERM, .timeout = {}, .last = true, .width = 160}, kContext);
  EXPECT_EQ(end.exit, 1);
  EXPECT_THAT(end.text, HasSubstr("disk full"));
}

TEST(Conclude, WithoutALastEpochThatStatusIsAFailure) {
  const std::vector<RankEnd> ends = {end_of(0, 5, exited(75)), end_of(1, 9, exited(0))};
  EXPECT_TRUE(conclude({.ranks = ends, .asked = {}, .timeout = {}}, kContext).failure);
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
}  // namespace corro::diagnosis
