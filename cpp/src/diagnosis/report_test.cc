#include "diagnosis/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "diagnosis/error_file.h"
#include "diagnosis/flight_text.h"

namespace corro::diagnosis {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

std::vector<RankEnd> four_ranks() {
  std::vector<RankEnd> ends(4);
  for (int rank = 0; rank < 4; ++rank) {
    RankEnd& end = ends[static_cast<size_t>(rank)];
    end.rank = rank;
    end.pid = 100 + rank;
    end.ended = true;
    end.stopped = rank != 2;
    end.status = rank == 2 ? 1 << 8 : SIGTERM;
    end.when = {milliseconds(1000)};
  }
  ends[2].crash.error = "ValueError: root cause here";
  ends[2].crash.where = {"train.py", 12, "main", "loss.backward()"};
  obs::ProcessSnapshot flight{.rank = 2, .size = 4, .pid = 102, .step = 17, .operations = 1};
  obs::OpSnapshot op;
  op.sequence = 1;
  op.op = {.op_id = 16, .kind = OpKind::kAllreduce, .dtype = DType::kBF16, .count = 5};
  op.name = "layer1";
  op.phase = obs::Phase::kReduce;
  op.waiting_for = 3;
  op.queued_ns = 100'000'000;
  op.started_ns = 500'000'000;
  flight.recent.push_back(op);
  ends[2].flight = flight;
  return ends;
}

FailureReport report_of(const std::vector<RankEnd>& ends) {
  return describe_failure(decide_culprit(ends), ends, {.host = "node7", .log_dir = "runs/a"});
}

size_t lines_of(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(FailureBlock, SaysWhoWhatWhereWithWhomAndWhatToDo) {
  EXPECT_EQ(format_block(report_of(four_ranks()), 160),
            "corro: rank 2 failed on node7 (pid 102, step 17)\n"
            "  what   ValueError: root cause here\n"
            "  where  train.py:12 in main: loss.backward()\n"
            "  with   in allreduce #17 'layer1' (bf16 x 5), phase reduce for 0.5 s, waiting for "
            "rank 3\n"
            "  others 3 ranks were stopped because of it (ranks 0-1,3)\n"
            "  exit   1\n"
            "  log    runs/a/rank-2.log\n"
            "  do     mend that line; the full traceback is in the log\n");
}

TEST(FailureBlock, NeverHasMoreThanTwelveLinesNorWideOnes) {
  auto ends = four_ranks();
  ends[2].crash.error = std::string(5000, 'x') + "\n\n\n" + std::string(100, '\n');
  ends[2].crash.where.code = std::string(3000, 'y') + "\x1b[2J";
  const std::string block = format_block(report_of(ends), 80);
  EXPECT_LE(lines_of(block), kMaxBlockLines);
  EXPECT_THAT(block, Not(HasSubstr("\x1b")));
  std::istringstream lines(block);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(FailureBlock, ALongCauseGoesOnBelowSoThatItsEndIsSeen) {
  auto ends = four_ranks();
  ends[2].crash.error =
      "corro.MismatchError: rank 0 called allreduce(f64[2], average), rank 1 called "
      "allreduce(f64[3], average)";
  const std::string block = format_block(report_of(ends), 80);
  EXPECT_THAT(block,
              HasSubstr("  what   corro.MismatchError: rank 0 called allreduce(f64[2], average), "
                        "rank 1\n         called allreduce(f64[3], average)\n  where"));
  EXPECT_THAT(block, HasSubstr("make every rank call the same operation"));
}

TEST(FailureBlock, TheCauseHasTheRestOfTheMessage) {
  auto ends = four_ranks();
  ends[2].crash.details = "and its details";
  EXPECT_EQ(report_of(ends).cause, "ValueError: root cause here and its details");
  ends[2].status = SIGABRT;
  EXPECT_THAT(report_of(ends).cause, testing::EndsWith(": root cause here and its details"));
}

TEST(FailureBlock, AtADeadlineItSendsToTheRankThatWasWaitedFor) {
  auto ends = four_ranks();
  ends[2].crash.error =
      "corro.TimeoutError: allreduce #4 on rank 2 (phase exchange): waited for rank 3";
  EXPECT_THAT(format_block(report_of(ends), 160), HasSubstr("do     see what rank 3 did: its log"));
}

TEST(FailureBlock, TheDeadlineToRaiseIsTheOneThatTheRankHad) {
  auto ends = four_ranks();
  obs::OpSnapshot& last = ends[2].flight->recent.back();
  last.phase = obs::Phase::kFailed;
  last.code = Code::kDeadlineExceeded;
  ends[2].crash.error = "corro.TimeoutError: waited for rank 3";
  EXPECT_THAT(report_of(ends).advice, HasSubstr("raise CORRO_TIMEOUT (or torch's timeout=) if"));
  ends[2].crash.error = "horovod.common.exceptions.HorovodInternalError: waited for rank 3";
  EXPECT_THAT(report_of(ends).advice, HasSubstr("raise HOROVOD_STALL_SHUTDOWN_TIME_SECONDS if"));
}

TEST(FailureBlock, SaysWhatToDoAboutCommonErrors) {
  const auto advice_for = [](const std::string& error) {
    auto ends = four_ranks();
    ends[2].crash = {};
    ends[2].crash.last_line = error;
    return report_of(ends).advice;
  };
  EXPECT_EQ(advice_for("corro.InvalidArgumentError: CORRO_SPIN=x: expected a number above 0"),
            "set CORRO_SPIN to what is expected, or unset it");
  EXPECT_EQ(advice_for("corro.InvalidArgumentError: CORRO_ALGORITHMS: 'x': expected RULES or so"),
            "set CORRO_ALGORITHMS to what is expected, or unset it");
  EXPECT_EQ(advice_for("corro.UnavailableError: CORRO_LISTEN=1.2.3.4: listen on 1.2.3.4:0: Cannot "
                       "assign requested address"),
            "set CORRO_LISTEN to an address of this host");
  EXPECT_THAT(advice_for("python: can't open file '/me/x.py': [Errno 2] No such file"),
              HasSubstr("check that path"));
  EXPECT_THAT(advice_for("train.py: error: unrecognized arguments: --epoch 3"),
              HasSubstr("check the program's own"));
  EXPECT_THAT(advice_for("ModuleNotFoundError: No module named 'pandas'"),
              HasSubstr("install what is missing"));
  EXPECT_EQ(advice_for("corro.MismatchError: DistributedOptimizer: ranks have different "
                       "parameters: rank 0 has 4, rank 1 has 6"),
            "build the same model on every rank");
  EXPECT_THAT(advice_for("MismatchError: allreduce: ranks disagree"),
              HasSubstr("the same operation"));
  EXPECT_THAT(advice_for("ModuleNotFoundError: No module named 'corro'"),
              HasSubstr("leave `python` out"));
}

TEST(Report, OfALostHostSendsToItsNetworkAndAgentNotToAKiller) {
  std::vector<RankEnd> ends(1);
  ends[0] = {.rank = 0, .ended = true, .status = SIGKILL, .lost = "host b was lost: silence"};
  EXPECT_EQ(report_of(ends).cause, "host b was lost: silence");
  EXPECT_THAT(report_of(ends).advice, HasSubstr("network and ssh"));
  EXPECT_THAT(report_of(ends).advice, Not(HasSubstr("memory")));
}

TEST(FailureBlock, SaysWhichRankHasAStandardInput) {
  auto ends = four_ranks();
  for (const char* error : {"EOFError: EOF when reading a line", "bdb.BdbQuit"}) {
    ends[2].crash.error = error;
    EXPECT_THAT(report_of(ends).advice, HasSubstr("on rank 0 only")) << error;
  }
}

TEST(FailureBlock, OfARankOfAnotherReleaseThanItsAgentTheScriptIsNotBlamed) {
  auto ends = four_ranks();
  ends[2].crash.error =
      "corro.errors.FailedPreconditionError: agent @corro-1: this rank's corro has message version "
      "2, its agent 1: install the same corro in the image";
  EXPECT_THAT(report_of(ends).advice, HasSubstr("install the corro of the agent"));
}

TEST(FailureBlock, OfARankThatRaisedAndWasStoppedTheErrorIsTheCause) {
  auto ends = four_ranks();
  for (RankEnd& end : ends) {
    end.stopped = end.rank > 0;
    end.status = end.stopped ? SIGTERM : 1 << 8;
  }
  ends[0].crash.error = "corro.RankLostError: allreduce: rank 2 was lost";
  const FailureReport report = report_of(ends);
  EXPECT_EQ(report.rank, 2);
  EXPECT_EQ(report.cause, "ValueError: root cause here");
  EXPECT_THAT(report.advice, HasSubstr("mend that line"));
}

TEST(FailureBlock, SaysWhereOthersFailedInTheSameWayIfThatWasElsewhere) {
  auto ends = four_ranks();
  ends[1] = ends[2];
  ends[1].rank = 1;
  ends[3] = ends[2];
  ends[3].rank = 3;
  EXPECT_EQ(report_of(ends).alike_at, "");
  ends[3].crash.where.line = 7;
  EXPECT_THAT(format_block(report_of(ends), 160),
              HasSubstr("ranks 2-3 failed in the same way (rank 3 at train.py:7 in main"));
}

TEST(FailureBlock, OutOfMemoryIsTheCauseAndNamesTheLimit) {
  auto ends = four_ranks();
  ends[2].status = SIGKILL;
  ends[2].out_of_memory = "out of memory: cgroup limit 512 MiB (/sys/fs/cgroup/job)";
  const std::string block = format_block(report_of(ends), 160);
  EXPECT_THAT(block, HasSubstr("what   out of memory: cgroup limit 512 MiB"));
  EXPECT_THAT(block, HasSubstr("exit   137"));
  EXPECT_THAT(block, HasSubstr("raise the limit"));
}

TEST(FailureBlock, WithoutATracebackTheLastLineOfStderrIsTheCause) {
  auto ends = four_ranks();
  ends[2].crash = {};
  ends[2].crash.last_line = "cannot open data.bin";
  EXPECT_EQ(report_of(ends).cause, "cannot open data.bin");
  ends[2].crash = {};
  EXPECT_EQ(report_of(ends).cause, "exited with status 1");
}

TEST(FailureBlock, HasTheHintBelowTheAdvice) {
  const auto ends = four_ranks();
  const auto hint = [](const Crash& crash) { return "after " + crash.error; };
  const auto report = describe_failure(decide_culprit(ends), ends,
                                       {.host = "h", .log_dir = "d", .now = {}, .hint = hint});
  EXPECT_THAT(format_block(report, 160),
              HasSubstr("in the log\n  hint   after ValueError: root cause here"));
}

TEST(FailureJson, HasTheFixedKeys) {
  const auto json = nlohmann::json::parse(format_json(report_of(four_ranks())));
  EXPECT_EQ(json["rank"], 2);
  EXPECT_EQ(json["host"], "node7");
  EXPECT_EQ(json["pid"], 102);
  EXPECT_EQ(json["step"], 17);
  EXPECT_EQ(json["op"], "allreduce");
  EXPECT_EQ(json["phase"], "reduce");
  EXPECT_EQ(json["cause"], "ValueError: root cause here");
  EXPECT_EQ(json["exit"], 1);
  EXPECT_EQ(json["victims"], nlohmann::json({0, 1, 3}));
  EXPECT_EQ(json["waited"], nlohmann::json::array());
}

TEST(FailureJson, KeepsTheKeysAndSurvivesForeignBytesWithoutARecorder) {
  auto ends = four_ranks();
  ends[2].flight.reset();
  ends[2].crash.error = "ValueError: \xff\xfe";
  const auto json = nlohmann::json::parse(format_json(report_of(ends)));
  EXPECT_TRUE(json["step"].is_null());
  EXPECT_TRUE(json["op"].is_null());
  EXPECT_TRUE(json["phase"].is_null());
}

TEST(TimeoutBlock, NeverHasMoreThanTwelveLines) {
  std::vector<RankEnd> ends(40);
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    ends[rank].rank = static_cast<int>(rank);
    ends[rank].flight = obs::ProcessSnapshot{.step = rank + 1};
  }
  const std::string block =
      format_timeout_block(std::chrono::seconds(5), ends, {.host = "h", .log_dir = "runs/a"}, 100);
  EXPECT_LE(lines_of(block), kMaxBlockLines);
  EXPECT_THAT(block, HasSubstr("ranks 0-39"));
  EXPECT_THAT(block, HasSubstr("runs/a"));
}

TEST(DescribeProgress, TellsOfTheOldestOperationThatIsGoingOn) {
  auto flight = *four_ranks()[2].flight;
  obs::OpSnapshot later = flight.recent[0];
  later.sequence = 2;
  later.op.op_id = 17;
  flight.recent.push_back(later);
  EXPECT_EQ(telling_operation(flight)->op.op_id, 16U);
  flight.recent[0].phase = obs::Phase::kDone;
  EXPECT_EQ(telling_operation(flight)->op.op_id, 17U);
  flight.recent[1].phase = obs::Phase::kDone;
  flight.recent[1].done_ns = 700'000'000;
  EXPECT_THAT(describe_progress(flight, {milliseconds(1000)}), HasSubstr("done 0.3 s before"));
  EXPECT_EQ(describe_progress({}, {}), "no operation yet");
}

TEST(TellingOperation, TheFiringThatAThreadHasSaysMoreThanTransfersAndLessThanOperations) {
  const auto shown = [](uint64_t sequence, std::optional<OpKind> kind, const std::string& lane,
                        obs::Phase phase) {
    obs::OpSnapshot op;
    op.sequence = sequence;
    op.op = {.op_id = sequence, .kind = kind, .count = 8};
    op.name = "x";
    op.plan_lane = lane;
    op.phase = phase;
    return op;
  };
  obs::ProcessSnapshot flight;
  flight.recent = {shown(1, OpKind::kRecv, "x", obs::Phase::kTransfer),
                   shown(2, std::nullopt, "rank0", obs::Phase::kRun)};
  EXPECT_EQ(describe_operation(*telling_operation(flight)),
            "service x, micro-batch 2 (lane rank0)");
  EXPECT_EQ(last_operation(flight)->sequence, 1U) << "what a verdict looks at";
  flight.recent.push_back(shown(3, OpKind::kAllreduce, "", obs::Phase::kExchange));
  EXPECT_EQ(describe_operation(*telling_operation(flight)), "allreduce #4 'x' (u8 x 8)");
  flight.recent[2].phase = flight.recent[1].phase = obs::Phase::kDone;
  EXPECT_EQ(describe_operation(*telling_operation(flight)), "recv 'x', micro-batch 1 (u8 x 8)");
}

TEST(ErrorFile, ReadsWhatTorchsRecordDecoratorWrites) {
  EXPECT_EQ(read_error_message(R"({"message": {"message": "ValueError: x", "extraInfo": {}}})"),
            "ValueError: x");
  EXPECT_EQ(read_error_message(R"({"message": "text"})"), "text");
  for (const char* bad : {"", "{", "[]", "{}", R"({"message": 3})", R"({"message": {}})"}) {
    EXPECT_FALSE(read_error_message(bad)) << bad;
  }
}

TEST(ErrorFile, WritesWhatItReads) {
  EXPECT_EQ(read_error_message(format_error_file(report_of(four_ranks()), 1)),
            "ValueError: root cause here");
}

}  // namespace
}  // namespace corro::diagnosis
