#include "dashboard/job_screen.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dashboard/board_text.h"
#include "dashboard/terminal_text.h"

namespace corro::dashboard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr UnixTime kStarted{seconds(1000)};

RankRow rank_at(int place, RankState state, uint64_t step) {
  return {.place = place,
          .rank = place,
          .member = "00ff",
          .host = "node1",
          .state = state,
          .step = step,
          .operation = "allreduce #2 (f64 x 1)",
          .phase = "transfer",
          .pid = 4711 + place};
}

/// Two ranks, of which rank 0 waits for rank 1.
BoardCopy waiting_job() {
  BoardCopy job{.picture = {.job = "3f2a",
                            .command = "train.py",
                            .state = JobState::kWaiting,
                            .summary = "rank 0 waits for rank 1 in allreduce #2",
                            .epoch = 3,
                            .started = kStarted,
                            .ranks = {rank_at(0, RankState::kRunning, 41),
                                      rank_at(1, RankState::kRunning, 40)}},
                .now = kStarted + seconds(64)};
  job.picture.ranks[0].awaits = 1;
  job.happenings = {
      {.at = kStarted, .kind = "started", .rank = 0, .place = 0, .host = "node1"},
      {.at = kStarted + seconds(60), .kind = "waiting", .place = 1, .cause = "too long"}};
  return job;
}

BoardCopy job_of(int ranks) {
  BoardCopy job{.picture = {.state = JobState::kRunning, .summary = "they run"}};
  for (int place = 0; place < ranks; ++place)
    job.picture.ranks.push_back(rank_at(place, RankState::kRunning, 50));
  return job;
}

std::string text_of(const BoardCopy& job, const ScreenOptions& options = {}) {
  return fmt::format("{}", fmt::join(job_lines(job, options), "\n"));
}

/// The places of the ranks that are shown.
std::vector<std::string> places_of(const BoardCopy& job, const ScreenOptions& options) {
  std::vector<std::string> places;
  for (const std::string& line : job_lines(job, options))
    if (!line.empty() && line[0] >= '0' && line[0] <= '9' && line.find("more") == std::string::npos)
      places.push_back(line.substr(0, line.find(' ')));
  return places;
}

TEST(JobScreen, ShowsHowFarTheTrainingIsAndWhatRanksLog) {
  BoardCopy job = job_of(2);
  job.now = kStarted;
  for (RankRow& row : job.picture.ranks) {
    row.of = 200;
    row.done = row.step;
    row.step_seconds = 0.25;
    row.wait_share = row.place == 0 ? 0.5 : 0.02;
    row.values = {{"loss", row.place == 0 ? 0.5 : 1.0, 50}, {"lr\x1b[2J", 0.1, 50}};
  }
  const std::string text = text_of(job);
  EXPECT_THAT(text, HasSubstr("step 50 of 200 (25 %), about 38 s left"));
  EXPECT_THAT(text, HasSubstr("\nloss 0.75 (0.5 to 1)   lr"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "a name does nothing to the terminal";
  EXPECT_THAT(text, HasSubstr("step  takes   waits  doing"));
  EXPECT_THAT(text, HasSubstr("50    250 ms  50 %   allreduce"));
  EXPECT_THAT(text, HasSubstr("50    250 ms  2 %    allreduce"));
}

TEST(JobScreen, HowFarItIsInOneLine) {
  BoardCopy job = job_of(2);
  job.now = kStarted;
  job.steps.clear();
  for (RankRow& row : job.picture.ranks) {
    row.of = 200;
    row.done = row.step;
    row.step_seconds = 0.25;
    row.values = {{"loss", row.place == 0 ? 0.5 : 1.0, 50}};
  }
  EXPECT_EQ(progress_line(job),
            "step 50 of 200 [####............] 25 %, about 38 s left   loss 0.75 (0.5 to 1)");
  for (RankRow& row : job.picture.ranks) row.of.reset();
  EXPECT_EQ(progress_line(job), "step 50   loss 0.75 (0.5 to 1)");
  for (RankRow& row : job.picture.ranks) row.step.reset();
  EXPECT_EQ(progress_line(job), "");
}

TEST(JobScreen, SaysTheSentenceThenFactsThenRanksThenEvents) {
  EXPECT_EQ(text_of(waiting_job()),
            R"(rank 0 waits for rank 1 in allreduce #2
waiting   step 41   epoch 3   running for 1 min 4 s

rank  state               step  doing                             waits for  host   pid   why
0     ● running           41    allreduce #2 (f64 x 1), transfer  rank 1     node1  4711
1     ● running, awaited  40    allreduce #2 (f64 x 1), transfer             node1  4712

1 min 4 s ago  started  rank 0  node1
4 s ago        waiting  rank 1           too long)");
}

TEST(JobScreen, WhatItShowsIsWhatTheDashboardSays) {
  Board board;
  const BoardCopy job = waiting_job();
  for (const Happening& one : job.happenings) board.hear(one);
  board.show(job.picture, job.now);
  const auto read = read_job(write_job(board, job.now));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(text_of(*read), text_of(job));
  EXPECT_EQ(read->picture.job, "3f2a");
  EXPECT_EQ(read->picture.command, "train.py");
  EXPECT_EQ(read->picture.ranks[1].member, "00ff");
  ASSERT_EQ(read->steps.size(), 1U);
  EXPECT_EQ(read->steps[0].step, 41U);
  EXPECT_EQ(read->steps[0].at, job.now);
}

TEST(JobScreen, AnAnswerOfAnotherVersionIsNotUnderstood) {
  for (const char* text : {"", "stacks", "[]", "{}", R"({"summary": 3})"}) {
    const auto job = read_job(text);
    ASSERT_FALSE(job.ok()) << text;
    EXPECT_EQ(job.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(job.status().message(), HasSubstr("another version of corro"));
  }
}

TEST(JobScreen, EachStateHasASign) {
  BoardCopy job = job_of(0);
  for (int i = 0; i < 7; ++i) job.picture.ranks.push_back(rank_at(i, static_cast<RankState>(i), 1));
  const std::string text = text_of(job);
  for (const char* sign :
       {"○ starting", "● running", "‖ paused", "✓ done", "■ stopped", "✕ failed", "✕ lost"})
    EXPECT_THAT(text, HasSubstr(sign));
}

TEST(JobScreen, ARankOfAnotherNumberNowIsNamedByItsPlace) {
  BoardCopy job = job_of(2);
  job.picture.ranks[1].rank = 0;
  EXPECT_THAT(text_of(job), HasSubstr("\n1 (now 0)  "));
}

TEST(JobScreen, NoLineIsWiderThanTheTerminal) {
  BoardCopy job = waiting_job();
  job.picture.ranks[1].cause = "ValueError: 节点 is no number, and goes on for long";
  for (size_t width = 1; width < 140; ++width)
    for (const std::string& line : job_lines(job, {.width = width, .height = 24, .footer = "q"}))
      EXPECT_LE(width_of(line), std::max<size_t>(width, 1)) << width << ": " << line;
  EXPECT_THAT(text_of(job, {.width = 60}), AllOf(HasSubstr("…"), HasSubstr("rank 1")));
}

TEST(JobScreen, RanksThatMatterComeFirstIfNotAllHaveRoom) {
  BoardCopy job = job_of(12);
  job.picture.state = JobState::kWaiting;
  job.picture.ranks[4].step = 49;
  job.picture.ranks[7].awaits = 9;
  job.picture.ranks[8].state = RankState::kPaused;
  job.picture.ranks[3].state = RankState::kDone;
  job.picture.ranks[11].state = RankState::kFailed;
  const ScreenOptions small{.width = 80, .height = 11, .footer = "q quits"};
  EXPECT_THAT(places_of(job, small), ElementsAre("11", "9", "8", "4", "0"));
  EXPECT_THAT(text_of(job, small), AllOf(HasSubstr("\n7 more\nq quits"), Not(HasSubstr("above"))));
  EXPECT_EQ(places_of(job, {.width = 80}).front(), "0") << "all have room";
  EXPECT_THAT(text_of(job, {.width = 80}), Not(HasSubstr("more")));
}

TEST(JobScreen, ScrollsToTheLastRankAndNoFurther) {
  const BoardCopy job = job_of(12);
  ScreenOptions small{.width = 80, .height = 11, .footer = "q quits"};
  EXPECT_EQ(ranks_at_once(job, small), 5U);
  EXPECT_EQ(most_scroll(job, small), 7U);
  small.scroll = 2;
  EXPECT_THAT(places_of(job, small), ElementsAre("2", "3", "4", "5", "6"));
  EXPECT_THAT(text_of(job, small), HasSubstr("\n2 above, 5 more\n"));
  small.scroll = 100;
  EXPECT_THAT(places_of(job, small), ElementsAre("7", "8", "9", "10", "11"));
  EXPECT_EQ(most_scroll(job, {.width = 80, .height = 24}), 0U);
}

TEST(JobScreen, HasAsManyLinesAsThereIsRoomFor) {
  BoardCopy job = waiting_job();
  for (size_t height = 1; height < 20; ++height)
    EXPECT_LE(job_lines(job, {.width = 80, .height = height, .footer = "q quits"}).size(), height);
  EXPECT_THAT(job_lines(job, {.width = 80, .height = 1}), ElementsAre(job.picture.summary));
  EXPECT_THAT(text_of(job, {.width = 80, .height = 6}), Not(HasSubstr("too long")))
      << "ranks first";
}

TEST(JobScreen, ShowsTheLastFiveEvents) {
  BoardCopy job = job_of(1);
  for (int i = 0; i < 9; ++i) job.happenings.push_back({.kind = fmt::format("kind{}", i)});
  EXPECT_THAT(text_of(job), AllOf(Not(HasSubstr("kind3")), HasSubstr("kind4"), HasSubstr("kind8")));
}

TEST(JobScreen, NothingOfOthersReachesTheTerminal) {
  BoardCopy job = waiting_job();
  const std::string hostile = "\x1b]0;taken\a\r\n\u009b2J";
  job.picture.summary += hostile;
  job.picture.ranks[0].host = hostile;
  job.picture.ranks[0].operation = hostile;
  job.picture.ranks[0].cause = hostile;
  job.happenings[0].host = hostile;
  job.happenings[0].kind = hostile;
  job.happenings[0].cause = hostile;
  for (const std::string& line : job_lines(job, {})) EXPECT_EQ(printable(line), line);
}

TEST(JobScreen, ColourIsAnAdditionOnly) {
  BoardCopy job = waiting_job();
  job.picture.ranks[1].state = RankState::kFailed;
  std::string text = text_of(job, {.width = 80, .height = 24, .colour = true, .footer = "q"});
  EXPECT_THAT(text, HasSubstr("\x1b[33m"));
  for (const char* code : {"0", "1", "2", "31", "32", "33"}) {
    const std::string sequence = fmt::format("\x1b[{}m", code);
    for (size_t at = 0; (at = text.find(sequence)) != std::string::npos;)
      text.erase(at, sequence.size());
  }
  EXPECT_EQ(text, text_of(job, {.width = 80, .height = 24, .footer = "q"}));
}

TEST(JobScreen, StepsASecondAreOfTheLastSeconds) {
  const auto at = [](int second, uint64_t step) {
    return StepPoint{.at = kStarted + seconds(second), .step = step};
  };
  EXPECT_FALSE(step_rate({}));
  EXPECT_FALSE(step_rate({at(0, 1)}));
  EXPECT_DOUBLE_EQ(*step_rate({at(0, 1), at(1, 3)}), 2);
  EXPECT_DOUBLE_EQ(*step_rate({at(0, 0), at(10, 100), at(13, 106), at(14, 108)}), 2);
  EXPECT_DOUBLE_EQ(*step_rate({at(0, 9), at(1, 3)}), 0) << "it has gone back to a checkpoint";
  BoardCopy job = waiting_job();
  job.steps = {at(0, 1), at(1, 3)};
  EXPECT_THAT(text_of(job), HasSubstr("   step 41   2 steps/s   epoch 3   "));
  job.picture.state = JobState::kDone;
  EXPECT_THAT(text_of(job), Not(HasSubstr("steps/s")));
}

}  // namespace
}  // namespace corro::dashboard
