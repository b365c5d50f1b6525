#include "screen/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::screen {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Time at(int ms) { return {milliseconds(ms)}; }

/// A screen with everything that it wrote.
class Recorded {
 public:
  explicit Recorded(Screen::Options options)
      : screen(std::move(options), [this](io::Output stream, const std::string& bytes) {
          (stream == io::Output::kOut ? out : err) += bytes;
          both += bytes;
        }) {}
  std::string out, err, both;
  Screen screen;
};

Screen::Options of_ranks(int ranks, Show show = {}) { return {.show = show, .ranks = ranks}; }

struct KeptLine {
  std::string text;
  bool progress = false;
};

/// A splitter that keeps its lines.
class Splitter {
 public:
  std::vector<KeptLine> feed(std::string_view bytes) {
    std::vector<KeptLine> lines;
    splitter_.feed(
        bytes, [&](const Line& line) { lines.push_back({std::string(line.text), line.progress}); });
    return lines;
  }
  std::vector<KeptLine> finish() {
    std::vector<KeptLine> lines;
    splitter_.finish(
        [&](const Line& line) { lines.push_back({std::string(line.text), line.progress}); });
    return lines;
  }

 private:
  LineSplitter splitter_;
};

TEST(LineSplitter, CutsLinesHoweverTheyArrive) {
  Splitter splitter;
  EXPECT_TRUE(splitter.feed("ab").empty());
  auto lines = splitter.feed("c\nd\r\ne");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].text, "abc");
  EXPECT_EQ(lines[1].text, "d");
  EXPECT_FALSE(lines[1].progress);
  lines = splitter.finish();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].text, "e");
  EXPECT_TRUE(splitter.finish().empty());
}

TEST(LineSplitter, AReturnStartsTheLineAnew) {
  Splitter splitter;
  auto lines = splitter.feed("10%\r20%\r");
  EXPECT_TRUE(lines.empty());
  lines = splitter.feed("100%\n");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].text, "100%");
  EXPECT_TRUE(lines[0].progress);
  EXPECT_FALSE(splitter.feed("next\n")[0].progress);
}

TEST(LineSplitter, AReturnAndItsNewlineMayArriveApart) {
  Splitter splitter;
  EXPECT_TRUE(splitter.feed("text\r").empty());
  const auto lines = splitter.feed("\nmore\n");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].text, "text");
  EXPECT_FALSE(lines[0].progress);
}

TEST(LineSplitter, CutsHugeLinesAndLosesNothing) {
  Splitter splitter;
  const std::string huge(3 * kMaxLineBytes + 5, 'x');
  auto lines = splitter.feed(huge + "\n");
  ASSERT_EQ(lines.size(), 4U);
  size_t total = 0;
  for (const KeptLine& line : lines) total += line.text.size();
  EXPECT_EQ(total, huge.size());
}

TEST(Screen, Rank0GoesThroughByteForByte) {
  Recorded recorded(of_ranks(2));
  const std::string bytes("a\x00\xff\r 10%\r\n\x1b[1mb", 16);
  recorded.screen.feed(0, io::Output::kOut, bytes, at(0));
  EXPECT_EQ(recorded.out, bytes);
}

TEST(Screen, EqualLinesOfOtherRanksAreNotShown) {
  Recorded recorded(of_ranks(3));
  recorded.screen.feed(1, io::Output::kOut, "epoch 1\n", at(0));
  recorded.screen.feed(0, io::Output::kOut, "epoch 1\n", at(10));
  recorded.screen.feed(2, io::Output::kOut, "epoch 1\n", at(500));
  recorded.screen.flush(at(5000));
  EXPECT_EQ(recorded.out, "epoch 1\n");
}

TEST(Screen, TooManyDifferentLinesAreShownAtOnceEvenIfTheyComeTogether) {
  Recorded recorded(of_ranks(2));
  std::string lines;
  constexpr int kLines = 100'000;
  for (int i = 0; i < kLines; ++i) lines += std::to_string(i) + "\n";
  recorded.screen.feed(1, io::Output::kOut, lines, at(0));
  EXPECT_THAT(recorded.out, testing::StartsWith("[rank 1] 0\n[rank 1] 1\n"));
  recorded.screen.flush(at(0));
  EXPECT_EQ(std::ranges::count(recorded.out, '\n'), kLines);
}

TEST(Screen, TooManyDifferentLinesDoNotBreakALineThatIsAboutToBeCompleted) {
  Recorded recorded(of_ranks(2));
  std::string lines;
  while (lines.size() < 300'000) lines += std::to_string(lines.size()) + "\n";
  recorded.screen.feed(0, io::Output::kOut, "loss ", at(0));
  recorded.screen.feed(1, io::Output::kOut, lines, at(10));
  recorded.screen.feed(0, io::Output::kOut, "1.5\n", at(20));
  recorded.screen.tick(at(20));
  EXPECT_THAT(recorded.out, testing::StartsWith("loss 1.5\n[rank 1] 0\n"));
}

TEST(Screen, ARepeatedLineIsComparedCopyByCopy) {
  Recorded recorded(of_ranks(2));
  recorded.screen.feed(0, io::Output::kOut, "warning\n", at(0));
  recorded.screen.feed(1, io::Output::kOut, "warning\nwarning\nwarning\n", at(0));
  recorded.screen.flush(at(1));
  EXPECT_EQ(recorded.out, "warning\n[rank 1] warning (x2)\n");
}

TEST(Screen, LinesThatDifferAreShownOnceAndCounted) {
  Recorded recorded(of_ranks(4));
  for (const int rank : {1, 2, 3})
    recorded.screen.feed(rank, io::Output::kErr, "no GPU\n", at(rank));
  recorded.screen.feed(2, io::Output::kErr, "only me\n", at(5));
  recorded.screen.tick(at(900));
  EXPECT_EQ(recorded.err, "");
  EXPECT_EQ(recorded.screen.next_tick(), at(1001));
  recorded.screen.tick(at(1001));
  recorded.screen.tick(at(2000));
  EXPECT_EQ(recorded.err, "[ranks 1-3] no GPU (x3 ranks)\n[rank 2] only me\n");
}

TEST(Screen, StdoutAndStderrAreKeptApart) {
  Recorded recorded(of_ranks(2));
  recorded.screen.feed(0, io::Output::kOut, "same\n", at(0));
  recorded.screen.feed(1, io::Output::kErr, "same\n", at(0));
  recorded.screen.flush(at(1));
  EXPECT_EQ(recorded.err, "[rank 1] same\n");
}

TEST(Screen, ColoursDoNotMakeALineDiffer) {
  Recorded recorded(of_ranks(2));
  recorded.screen.feed(0, io::Output::kOut, "\x1b[32mok\x1b[0m\n", at(0));
  recorded.screen.feed(1, io::Output::kOut, "ok\n", at(0));
  recorded.screen.flush(at(1));
  EXPECT_THAT(recorded.out, Not(HasSubstr("rank 1")));
}

TEST(Screen, ALineWithoutAnEndCountsWhenTheStreamEnds) {
  Recorded recorded(of_ranks(2));
  recorded.screen.feed(1, io::Output::kOut, "bye", at(0));
  recorded.screen.finish(1, io::Output::kOut, at(1));
  recorded.screen.flush(at(2));
  EXPECT_EQ(recorded.out, "[rank 1] bye\n");
}

TEST(Screen, ProgressBarsOfOtherRanksAreNotShown) {
  Recorded recorded(of_ranks(2));
  recorded.screen.feed(1, io::Output::kErr, "\r 10%\r 20%\r100% rank 1\n", at(0));
  recorded.screen.flush(at(1));
  EXPECT_EQ(recorded.err, "");
}

TEST(Screen, OnATerminalABarIsDrawnAgainBelowALineOfAnotherRank) {
  Recorded recorded({.ranks = 2, .out_is_terminal = true, .err_is_terminal = true});
  recorded.screen.feed(0, io::Output::kErr, "\r 10%|#   |", at(0));
  recorded.screen.feed(1, io::Output::kOut, "hello\n", at(0));
  recorded.screen.feed(0, io::Output::kErr, "\r 20%|##  |", at(990));
  recorded.screen.tick(at(1000));
  EXPECT_THAT(recorded.both, Not(HasSubstr("hello"))) << "the bar's line is still being written";
  recorded.screen.tick(recorded.screen.next_tick());
  EXPECT_THAT(recorded.both, HasSubstr("\r 20%|##  |\r\x1b[K[rank 1] hello\n 20%|##  |"));
}

TEST(Screen, InAFileALineOfAnotherRankEndsTheUnfinishedOne) {
  Recorded recorded(of_ranks(2));
  recorded.screen.feed(0, io::Output::kOut, "loading...", at(0));
  recorded.screen.feed(1, io::Output::kOut, "hello\n", at(0));
  recorded.screen.tick(at(1000));
  recorded.screen.feed(0, io::Output::kOut, " done\n", at(1100));
  EXPECT_EQ(recorded.out, "loading...\n[rank 1] hello\n done\n");
}

TEST(Screen, InAFileALineIsNotBrokenWhereItsRankIsStoppedForAMoment) {
  Recorded recorded(of_ranks(2));
  recorded.screen.feed(1, io::Output::kOut, "hello\n", at(0));
  recorded.screen.feed(0, io::Output::kOut, "before\nloss ", at(900));
  recorded.screen.tick(at(1500));
  recorded.screen.feed(0, io::Output::kOut, "1.5\n", at(1600));
  recorded.screen.tick(at(1600));
  EXPECT_EQ(recorded.out, "before\nloss 1.5\n[rank 1] hello\n");
}

TEST(Screen, InAFileLinesDoNotWaitForAProgressBar) {
  Recorded recorded(of_ranks(2));
  recorded.screen.feed(1, io::Output::kErr, "hello\n", at(0));
  for (int ms = 0; ms <= 1200; ms += 100)
    recorded.screen.feed(0, io::Output::kErr, "\r" + std::to_string(ms), at(ms));
  recorded.screen.tick(at(1260));
  EXPECT_THAT(recorded.err, HasSubstr("hello"));
}

TEST(Screen, ShowAllPrefixesEveryLine) {
  Recorded recorded(of_ranks(2, {ShowMode::kAll, {}}));
  recorded.screen.feed(0, io::Output::kOut, "a\nb\n", at(0));
  recorded.screen.feed(1, io::Output::kOut, "a\n", at(0));
  EXPECT_EQ(recorded.out, "[rank 0] a\n[rank 0] b\n[rank 1] a\n");
}

TEST(Screen, ShowStreamsPrefixesEveryLineAsHorovodDoes) {
  for (const int ranks : {1, 2}) {
    Recorded recorded(of_ranks(ranks, {ShowMode::kAll, {}, true}));
    recorded.screen.feed(0, io::Output::kOut, "a\nb\n", at(0));
    recorded.screen.feed(0, io::Output::kErr, "e\nend", at(0));
    recorded.screen.finish(0, io::Output::kErr, at(0));
    EXPECT_EQ(recorded.out, "[0]<stdout>:a\n[0]<stdout>:b\n");
    EXPECT_EQ(recorded.err, "[0]<stderr>:e\n[0]<stderr>:end\n");
  }
}

TEST(Screen, ShowStreamsKeepsProgressBarsOfAllRanks) {
  Recorded recorded(of_ranks(2, {ShowMode::kAll, {}, true}));
  recorded.screen.feed(0, io::Output::kOut, "10%\r", at(0));
  recorded.screen.feed(1, io::Output::kOut, "20%\r", at(0));
  recorded.screen.note("corro: a note\n");
  EXPECT_EQ(recorded.both, "[0]<stdout>:10%\r[1]<stdout>:20%\rcorro: a note\n");
}

TEST(Screen, TheTimeStandsInFrontOfEveryPrefix) {
  for (const auto& [streams, want] : {std::pair(false, "now [rank 0] a\nnow [rank 0] b\n"),
                                      {true, "now[0]<stdout>:a\nnow[0]<stdout>:b\n"}}) {
    for (const int ranks : {1, 2}) {
      Screen::Options options = of_ranks(ranks, {ShowMode::kAll, {}, streams, true});
      options.time = [] { return "now"; };
      Recorded recorded(std::move(options));
      recorded.screen.feed(0, io::Output::kOut, "a\nb\n", at(0));
      EXPECT_EQ(recorded.out, want);
    }
  }
}

TEST(Screen, ShowErrorsHidesStdout) {
  Recorded recorded(of_ranks(2, {ShowMode::kErrors, {}}));
  recorded.screen.feed(0, io::Output::kOut, "a\n", at(0));
  recorded.screen.feed(0, io::Output::kErr, "e\n", at(0));
  EXPECT_EQ(recorded.both, "e\n");
}

TEST(Screen, OneChosenRankIsShownAsItIsAndSeveralWithPrefixes) {
  Recorded one(of_ranks(4, {ShowMode::kRanks, {3}}));
  one.screen.feed(0, io::Output::kOut, "zero\n", at(0));
  one.screen.feed(3, io::Output::kOut, "thr", at(0));
  EXPECT_EQ(one.out, "thr");
  Recorded two(of_ranks(4, {ShowMode::kRanks, {0, 3}}));
  two.screen.feed(0, io::Output::kOut, "zero\n", at(0));
  two.screen.feed(1, io::Output::kOut, "one\n", at(0));
  two.screen.feed(3, io::Output::kOut, "three\n", at(0));
  EXPECT_EQ(two.out, "[rank 0] zero\n[rank 3] three\n");
}

TEST(Screen, AfterAFailureOnlyTheCulpritsErrorsAreShown) {
  Recorded recorded(of_ranks(3));
  recorded.screen.feed(1, io::Output::kErr, "RankLostError\n", at(0));
  recorded.screen.suspend_errors();
  recorded.screen.feed(2, io::Output::kErr, "ValueError\n", at(1));
  recorded.screen.feed(0, io::Output::kErr, "RankLostError\n", at(2));
  recorded.screen.feed(0, io::Output::kOut, "saved\n", at(3));
  recorded.screen.tick(at(9999));
  EXPECT_EQ(recorded.screen.next_tick(), Time::never());
  EXPECT_EQ(recorded.err, "");
  recorded.screen.settle(2);
  recorded.screen.flush(at(9999));
  EXPECT_EQ(recorded.err, "[rank 2] ValueError\n");
  EXPECT_EQ(recorded.out, "saved\n");
}

TEST(Screen, IfRank0IsToBlameItsErrorsAreShownAsTheyAre) {
  Recorded recorded(of_ranks(2));
  recorded.screen.suspend_errors();
  recorded.screen.feed(1, io::Output::kErr, "RankLostError\n", at(0));
  recorded.screen.feed(0, io::Output::kErr, "a\rb\n", at(0));
  recorded.screen.settle(0);
  recorded.screen.flush(at(1));
  EXPECT_EQ(recorded.err, "a\rb\n");
}

TEST(Screen, WhereEveryLineWasAskedForAFailureHidesNone) {
  Recorded recorded(of_ranks(2, {ShowMode::kAll, {}}));
  recorded.screen.suspend_errors();
  recorded.screen.feed(1, io::Output::kErr, "RankLostError\n", at(0));
  recorded.screen.settle(0);
  EXPECT_EQ(recorded.err, "[rank 1] RankLostError\n");
}

TEST(Screen, ATracebackOfRank0WaitsAMomentForTheFailureThatItMayReport) {
  const std::string traceback = "Traceback (most recent call last):\n  ...\nRankLostError: x\n";
  Recorded victim(of_ranks(2));
  victim.screen.feed(0, io::Output::kErr, "before\n" + traceback, at(0));
  victim.screen.suspend_errors();
  victim.screen.settle(1);
  victim.screen.flush(at(400));
  EXPECT_EQ(victim.err, "before\n");
  Recorded caught(of_ranks(2));
  caught.screen.feed(0, io::Output::kErr, "before\n" + traceback, at(0));
  caught.screen.tick(caught.screen.next_tick());
  EXPECT_EQ(caught.err, "before\n" + traceback);
}

const std::string kRaised =
    "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\n";

TEST(Screen, ATracebackOfAnotherRankIsShownWhole) {
  Recorded recorded(of_ranks(3));
  recorded.screen.feed(0, io::Output::kErr, kRaised + "KeyError: 0\n", at(0));
  recorded.screen.feed(1, io::Output::kErr, kRaised + "KeyError: 1\n", at(1));
  recorded.screen.feed(2, io::Output::kErr, kRaised + "KeyError: 0\n", at(2));
  while (recorded.screen.next_tick() != Time::never()) {
    recorded.screen.tick(recorded.screen.next_tick());
  }
  EXPECT_EQ(recorded.err, kRaised +
                              "KeyError: 0\n"
                              "[rank 1] Traceback (most recent call last):\n"
                              "[rank 1]   File \"a.py\", line 1, in f\n"
                              "[rank 1]     g()\n"
                              "[rank 1] KeyError: 1\n");
}

TEST(Screen, EqualTracebacksAreCountedAsAWhole) {
  Recorded recorded(of_ranks(3));
  for (const int rank : {1, 2})
    recorded.screen.feed(rank, io::Output::kErr, kRaised + "E\n", at(0));
  recorded.screen.flush(at(1));
  EXPECT_EQ(recorded.err,
            "[ranks 1-2] Traceback (most recent call last):\n"
            "[ranks 1-2]   File \"a.py\", line 1, in f\n"
            "[ranks 1-2]     g()\n"
            "[ranks 1-2] E (x2 ranks)\n");
}

TEST(Screen, AProgressBarBelowATracebackOfRank0DoesNotMakeItDiffer) {
  Recorded recorded(of_ranks(2));
  for (const int rank : {0, 1}) {
    recorded.screen.feed(rank, io::Output::kErr, kRaised + "E\n", at(0));
    recorded.screen.feed(rank, io::Output::kErr, "\r 10%|#  | 1/10\n", at(0));
    recorded.screen.finish(rank, io::Output::kErr, at(0));
  }
  recorded.screen.flush(at(1));
  EXPECT_EQ(recorded.err, kRaised + "E\n\r 10%|#  | 1/10\n");
}

TEST(Screen, TheCulpritsTracebackIsShownWholeThoughRank0HadTheSame) {
  Recorded recorded(of_ranks(2));
  recorded.screen.feed(0, io::Output::kErr, kRaised + "E\n", at(0));
  recorded.screen.feed(1, io::Output::kErr, kRaised + "E\n", at(0));
  recorded.screen.suspend_errors();
  recorded.screen.settle(1);
  recorded.screen.flush(at(1));
  EXPECT_THAT(recorded.err, testing::StartsWith("[rank 1] Traceback"));
  EXPECT_THAT(recorded.err, testing::EndsWith("[rank 1] E\n"));
}

TEST(Screen, OtherEscapesThanColoursAreCompared) {
  Recorded recorded(of_ranks(2));
  recorded.screen.feed(0, io::Output::kOut, "\x1b(B\n", at(0));
  recorded.screen.feed(1, io::Output::kOut, "\x1b(B\n\x1b", at(0));
  recorded.screen.flush(at(1));
  EXPECT_EQ(recorded.out, "\x1b(B\n");
}

TEST(Screen, CorrosOwnLinesNeverStandInsideAnotherLine) {
  Recorded recorded({.ranks = 1, .out_is_terminal = true, .err_is_terminal = true});
  recorded.screen.feed(0, io::Output::kOut, "50%", at(0));
  recorded.screen.note("corro: rank 0 failed\n");
  EXPECT_EQ(recorded.both, "50%\ncorro: rank 0 failed\n");
}

TEST(Folder, ForgetsTheOldestLinesInsteadOfGrowing) {
  Folder folder({.max_remembered_bytes = 500});
  for (int i = 0; i < 100; ++i) folder.lead(0, io::Output::kOut, std::to_string(i));
  folder.add(1, io::Output::kOut, "99", at(0));
  folder.add(1, io::Output::kOut, "0", at(0));
  const auto lines = folder.flush();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].text, "0");
  EXPECT_THAT(lines[0].ranks, ElementsAre(1));
}

TEST(Folder, DoesNotForgetALineThatWaits) {
  Folder folder({.max_remembered_bytes = 500});
  folder.add(1, io::Output::kOut, "waits", at(0));
  for (int i = 0; i < 100; ++i) folder.lead(0, io::Output::kOut, std::to_string(i));
  folder.add(2, io::Output::kOut, "waits", at(0));
  const auto lines = folder.flush();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0].ranks, ElementsAre(1, 2));
}

TEST(Folder, ShowsLinesEarlyInsteadOfHoldingTooMuch) {
  Folder folder({.max_pending_bytes = 1000});
  for (int i = 0; i < 10; ++i) {
    folder.add(1, io::Output::kOut, std::string(30, static_cast<char>('a' + i)), at(0));
  }
  EXPECT_EQ(folder.due(at(1)).size(), 7U);
  EXPECT_EQ(folder.flush().size(), 3U);
}

constexpr const char* kClear = "\r\x1b[K";

Screen::Options on_a_terminal(int ranks) {
  return {.ranks = ranks, .out_is_terminal = true, .err_is_terminal = true};
}

TEST(Status, OnATerminalItStaysBelowWhatIsShownAndIsTakenBack) {
  Recorded recorded(on_a_terminal(2));
  recorded.screen.set_status("waits 2 s");
  EXPECT_EQ(recorded.both, "waits 2 s");
  recorded.screen.set_status("waits 3 s");
  EXPECT_EQ(recorded.both, std::string("waits 2 s") + kClear + "waits 3 s");
  recorded.screen.set_status("waits 3 s");
  EXPECT_EQ(recorded.both, std::string("waits 2 s") + kClear + "waits 3 s") << "nothing is new";
  recorded.both.clear();
  recorded.screen.feed(0, io::Output::kOut, "a line\n", at(0));
  EXPECT_EQ(recorded.both, std::string(kClear) + "a line\nwaits 3 s");
  recorded.both.clear();
  recorded.screen.end_status("over");
  EXPECT_EQ(recorded.both, kClear);
  recorded.screen.feed(0, io::Output::kOut, "next\n", at(0));
  EXPECT_EQ(recorded.both, std::string(kClear) + "next\n");
}

TEST(Status, IsNotDrawnIntoALineWithoutAnEnd) {
  Recorded recorded(on_a_terminal(2));
  recorded.screen.set_status("waits");
  recorded.both.clear();
  recorded.screen.feed(0, io::Output::kOut, "10%", at(0));
  EXPECT_EQ(recorded.both, std::string(kClear) + "10%");
  recorded.screen.feed(0, io::Output::kOut, " done\n", at(0));
  EXPECT_THAT(recorded.both, testing::EndsWith(" done\nwaits"));
}

TEST(Status, ElsewhereAndBehindAProgressBarItIsNotedOnceAndItsEndToo) {
  for (const bool terminal : {false, true}) {
    Recorded recorded(terminal ? on_a_terminal(2) : of_ranks(2));
    if (terminal) recorded.screen.feed(0, io::Output::kErr, "\r10%", at(0));
    recorded.screen.set_status("waits 2 s");
    recorded.screen.set_status("waits 3 s");
    EXPECT_THAT(recorded.err, testing::EndsWith("waits 2 s\n"));
    recorded.screen.end_status("waited 4 s");
    recorded.screen.end_status("waited 5 s");
    EXPECT_THAT(recorded.err, testing::EndsWith("waits 2 s\nwaited 4 s\n"));
    recorded.screen.set_status("waits again");
    EXPECT_THAT(recorded.err, HasSubstr("waits again"));
    recorded.screen.end_status("");
    EXPECT_THAT(recorded.err, testing::EndsWith(terminal ? kClear : "waits again\n"));
  }
}

TEST(Progress, OnATerminalItStaysBelowWhatIsShown) {
  Recorded recorded(on_a_terminal(2));
  recorded.screen.set_progress("step 1");
  EXPECT_EQ(recorded.both, "step 1");
  recorded.screen.set_progress("step 1");
  EXPECT_EQ(recorded.both, "step 1") << "nothing is new";
  recorded.screen.set_progress("step 2");
  EXPECT_EQ(recorded.both, std::string("step 1") + kClear + "step 2");
  recorded.both.clear();
  recorded.screen.feed(0, io::Output::kOut, "a line\n", at(0));
  EXPECT_EQ(recorded.both, std::string(kClear) + "a line\nstep 2");
  recorded.both.clear();
  recorded.screen.set_progress("");
  recorded.screen.note("the end\n");
  EXPECT_EQ(recorded.both, std::string(kClear) + "the end\n");
}

TEST(Progress, GivesWayToAStatus) {
  Recorded recorded(on_a_terminal(2));
  recorded.screen.set_progress("step 1");
  recorded.screen.set_status("waits");
  EXPECT_EQ(recorded.both, std::string("step 1") + kClear + "waits");
  recorded.both.clear();
  recorded.screen.set_progress("step 2");
  EXPECT_THAT(recorded.both, Not(HasSubstr("step 2")));
  recorded.screen.end_status("");
  EXPECT_THAT(recorded.both, testing::EndsWith(std::string(kClear) + "step 2"));
}

TEST(Progress, BehindABarOfTheProgramOrElsewhereItIsNotShown) {
  Recorded recorded(on_a_terminal(2));
  recorded.screen.feed(0, io::Output::kErr, "\r10%", at(0));
  recorded.screen.set_progress("step 1");
  EXPECT_EQ(recorded.both, "\r10%");
  Recorded file(of_ranks(2));
  file.screen.set_progress("step 1");
  EXPECT_EQ(file.both, "");
}

}  // namespace
}  // namespace corro::screen
