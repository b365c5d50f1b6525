#include "dashboard/board.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "dashboard/board_text.h"

namespace corro::dashboard {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr UnixTime kStart{seconds(1000)};

RankRow rank_at(int place, uint64_t step) {
  return {.place = place,
          .rank = place,
          .member = "00ff",
          .host = "node1",
          .state = RankState::kRunning,
          .step = step,
          .operation = "allreduce #2 (f64 x 1)",
          .phase = "transfer",
          .awaits = 1 - place,
          .pid = 4711};
}

JobPicture picture_of(uint64_t slow, uint64_t fast) {
  return {.job = "3f2a",
          .command = "train.py",
          .state = JobState::kRunning,
          .summary = "2 ranks run",
          .epoch = 3,
          .started = kStart,
          .lost = 4,
          .ranks = {rank_at(0, slow), rank_at(1, fast)}};
}

TEST(Board, KeepsTheLastEventsButNoSteps) {
  Board board;
  for (size_t i = 0; i < kMostHappenings + 5; ++i) {
    board.hear({.kind = "joined", .rank = static_cast<int>(i)});
    board.hear({.kind = "step"});
  }
  ASSERT_EQ(board.happenings().size(), kMostHappenings);
  EXPECT_EQ(board.happenings().front().rank, 5);
  EXPECT_EQ(board.happenings().back().rank, static_cast<int>(kMostHappenings) + 4);
  EXPECT_EQ(board.count("step"), kMostHappenings + 5);
}

TEST(Board, NotesTheNewestStepOnceASecond) {
  Board board;
  board.show(picture_of(3, 4), kStart);
  board.show(picture_of(4, 5), kStart + std::chrono::milliseconds(200));
  board.show(picture_of(5, 6), kStart + seconds(1));
  ASSERT_EQ(board.steps().size(), 2U);
  EXPECT_EQ(board.steps()[0].step, 4U);
  EXPECT_EQ(board.steps()[1].step, 6U);
  for (size_t i = 0; i < kMostSteps; ++i) board.show(picture_of(7, 8), kStart + seconds(2 + i));
  EXPECT_EQ(board.steps().size(), kMostSteps);
}

TEST(Board, StepsAreThoseOfRanksThatRun) {
  std::vector<RankRow> ranks = picture_of(3, 9).ranks;
  ranks[1].state = RankState::kFailed;
  EXPECT_EQ(steps_of(ranks)->most, 3U);
  ranks[0].step.reset();
  EXPECT_FALSE(steps_of(ranks));
}

TEST(Board, IsJsonWithNullsForWhatThereIsNoneOf) {
  Board board;
  JobPicture picture = picture_of(3, 4);
  picture.ranks[0].awaits = -1;
  picture.ranks[0].step.reset();
  board.show(picture, kStart + seconds(7));
  board.hear({.at = kStart, .kind = "lost", .epoch = 3, .host = "node2", .cause = "gone"});
  const auto json = nlohmann::json::parse(write_job(board, kStart + seconds(8)));
  EXPECT_EQ(json["summary"], "2 ranks run");
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["started"], 1000);
  EXPECT_EQ(json["now"], 1008);
  EXPECT_EQ(json["steps"], nlohmann::json::parse("[[1007.0, 4]]"));
  const auto& ranks = json["ranks"];
  EXPECT_TRUE(ranks[0]["awaits"].is_null());
  EXPECT_TRUE(ranks[0]["step"].is_null());
  EXPECT_TRUE(ranks[0]["cause"].is_null());
  EXPECT_EQ(ranks[1]["awaits"], 0);
  EXPECT_EQ(ranks[1]["step"], 4);
  EXPECT_EQ(ranks[1]["phase"], "transfer");
  const auto& event = json["events"][0];
  EXPECT_EQ(event["kind"], "lost");
  EXPECT_TRUE(event["rank"].is_null());
  EXPECT_EQ(event["cause"], "gone");
}

TEST(Board, KeepsTheCourseOfWhatRanksLog) {
  Board board;
  for (uint64_t step = 1; step <= 3; ++step) {
    JobPicture picture = picture_of(step, step);
    for (RankRow& row : picture.ranks)
      row.values = {{"loss", 1.0 / static_cast<double>(step), step}};
    picture.ranks[0].values.push_back({"naïve", std::nan(""), step});
    picture.ranks[0].of = 10;
    picture.ranks[0].done = step;
    board.show(picture, kStart + seconds(step));
  }
  const auto json = nlohmann::json::parse(write_job(board, kStart + seconds(3)));
  ASSERT_EQ(json["metrics"].size(), 2U);
  const auto& loss = json["metrics"][0];
  EXPECT_EQ(loss["name"], "loss");
  EXPECT_EQ(loss["ranks"], 2);
  EXPECT_EQ(loss["points"], nlohmann::json::parse("[[1001.0,1,1.0],[1002.0,2,0.5],"
                                                  "[1003.0,3,0.3333333333333333]]"));
  EXPECT_EQ(json["metrics"][1]["mean"], "NaN") << "JSON has no such number";
  EXPECT_EQ(json["metrics"][1]["least"], "NaN");
  EXPECT_EQ(json["ranks"][1]["values"],
            nlohmann::json::parse(R"({"loss":[3,0.3333333333333333]})"));
  EXPECT_EQ(
      json["progress"],
      nlohmann::json::parse(R"({"step":3,"of":10,"steps_per_second":1.0,"eta_seconds":7.0})"));
}

TEST(Board, WithoutWhatRanksLogThereIsNoMetric) {
  Board board;
  board.show(picture_of(3, 4), kStart);
  const auto json = nlohmann::json::parse(write_job(board, kStart));
  EXPECT_TRUE(json["metrics"].empty());
  EXPECT_TRUE(json["ranks"][0]["values"].is_null());
  EXPECT_EQ(json["progress"]["step"], 4);
  EXPECT_TRUE(json["progress"]["of"].is_null());
  EXPECT_THAT(write_metrics(board, kStart), Not(HasSubstr("corro_log_value")));
}

TEST(Board, MetricsHaveOneSeriesForEachName) {
  Board board;
  JobPicture picture = picture_of(3, 4);
  for (RankRow& row : picture.ranks) {
    row.values = {{"loss", 0.5, 3}, {R"(a"b\)", std::nan(""), 3}};
    row.of = 30;
    row.done = 4;
    row.step_seconds = 2;
  }
  board.show(picture, kStart);
  const std::string text = write_metrics(board, kStart);
  EXPECT_THAT(text,
              HasSubstr("# TYPE corro_log_value gauge\ncorro_log_value{name=\"loss\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr(R"(corro_log_value{name="a\"b\\"} NaN)"));
  EXPECT_THAT(text, HasSubstr("\ncorro_job_steps 30\n"));
  EXPECT_THAT(text, HasSubstr("\ncorro_job_eta_seconds 52\n"));
}

TEST(Board, HistogramsHaveTheStepsOfThoseThatAreNoMore) {
  Board board;
  JobPicture picture = picture_of(3, 4);
  StepHistograms two;
  for (int i = 0; i < 2; ++i) two.taken.add(std::chrono::seconds(2));
  StepHistograms one;
  one.taken.add(std::chrono::seconds(2));
  picture.steps = {{"one", two}, {"other", two}};
  board.show(picture, kStart);
  board.show(picture, kStart);
  picture.steps = {{"one", one}, {"third", one}};
  board.show(picture, kStart);
  const std::string text = write_metrics(board, kStart);
  const size_t steps = 2 + 2 + 1 + 1;  // The first one has a new engine.
  EXPECT_THAT(text, HasSubstr("# TYPE corro_job_step_duration_seconds histogram\n"
                              "corro_job_step_duration_seconds_bucket{le=\"0.001\"} 0\n"));
  EXPECT_THAT(text,
              HasSubstr(fmt::format("\ncorro_job_step_duration_seconds_sum {}\n", 2 * steps)));
  EXPECT_THAT(text, HasSubstr(fmt::format("\ncorro_job_step_duration_seconds_count {}\n", steps)));
}

TEST(Board, TextThatIsNoUtf8IsStillJson) {
  Board board;
  board.hear({.kind = "ended", .cause = "\xff</script>"});
  const auto json = nlohmann::json::parse(write_job(board, kStart));
  EXPECT_EQ(json["events"][0]["cause"], "\xEF\xBF\xBD</script>");
}

TEST(Board, MetricsHaveTypesAndNoRanks) {
  Board board;
  EXPECT_THAT(write_metrics(board, kStart), Not(HasSubstr("corro_job_step_min")));
  board.hear({.kind = "started"});
  board.hear({.kind = "waiting", .cause = "rank 0 waits"});
  board.hear({.kind = "waiting"});
  board.hear({.kind = "checkpoint", .step = 20});
  board.show(picture_of(3, 4), kStart);
  const std::string text = write_metrics(board, kStart);
  for (const char* line :
       {"# TYPE corro_job_ranks gauge\ncorro_job_ranks 2\n", "\ncorro_job_epoch 3\n",
        "\ncorro_job_step_min 3\n", "\ncorro_job_step_max 4\n", "\ncorro_job_checkpoint_step 20\n",
        "# TYPE corro_job_ranks_lost_total counter\ncorro_job_ranks_lost_total 4\n",
        "\ncorro_job_ranks_started_total 1\n", "\ncorro_job_waits_total 1\n",
        "\ncorro_job_start_time_seconds 1000\n", "\ncorro_job_state{state=\"running\"} 1\n",
        "\ncorro_job_state{state=\"failed\"} 0\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("rank=")));
}

TEST(BoardText, HasLinksAndTables) {
  Board board;
  JobPicture picture = picture_of(3, 4);
  const TablePart part{.table = "users \"1\"",
                       .server = 2,
                       .host = "node2",
                       .rows = 70,
                       .bytes = 4480,
                       .shards = 8,
                       .steps = 5,
                       .pulls = 11,
                       .pulled_rows = 33,
                       .pushes = 12,
                       .pushed_rows = 24,
                       .pull_p99 = std::chrono::microseconds(250)};
  picture.links = {{.member = "00ff", .from = "node1", .to = "node2", .bytes = 100}};
  picture.tables = {part};
  board.show(picture, kStart);
  picture.links[0].bytes = 500;
  picture.tables[0].pulls = 31;
  picture.tables[0].pushed_rows = 64;
  board.show(picture, kStart + seconds(4));
  const auto json = nlohmann::json::parse(write_job(board, kStart + seconds(4)));
  EXPECT_EQ(json["links"], nlohmann::json::parse(R"([{"from": "node1", "to": "node2", "bytes": 500,
                                       "bytes_per_second": 100.0}])"));
  ASSERT_EQ(json["tables"].size(), 1U);
  const auto& table = json["tables"][0];
  EXPECT_EQ(table["table"], "users \"1\"");
  EXPECT_EQ(table["server"], 2);
  EXPECT_EQ(table["host"], "node2");
  EXPECT_EQ(table["rows"], 70);
  EXPECT_EQ(table["bytes"], 4480);
  EXPECT_EQ(table["shards"], 8);
  EXPECT_EQ(table["steps"], 5);
  EXPECT_EQ(table["pulls_per_second"], 5.0);
  EXPECT_EQ(table["pulled_rows_per_second"], 0.0);
  EXPECT_EQ(table["pushed_rows_per_second"], 10.0);
  EXPECT_EQ(table["pull_p99_seconds"], 0.00025);
  const std::string text = write_metrics(board, kStart + seconds(4));
  EXPECT_THAT(text,
              HasSubstr("\ncorro_job_link_sent_bytes_total{from=\"node1\",to=\"node2\"} 500\n"));
  EXPECT_THAT(text, HasSubstr(R"(corro_job_table_rows{table="users \"1\"",server="2"} 70)"));
  EXPECT_THAT(text,
              HasSubstr(R"(corro_job_table_pushed_rows_total{table="users \"1\"",server="2"} 64)"));
  EXPECT_THAT(
      text,
      HasSubstr(R"(corro_job_table_pull_p99_seconds{table="users \"1\"",server="2"} 0.00025)"));
}

TEST(BoardText, SaysNothingOfLinksAndTablesThatAreNotThere) {
  Board board;
  board.show(picture_of(3, 4), kStart);
  EXPECT_THAT(write_metrics(board, kStart), Not(HasSubstr("link")));
  EXPECT_THAT(write_metrics(board, kStart), Not(HasSubstr("table")));
  EXPECT_EQ(nlohmann::json::parse(write_job(board, kStart))["links"], nlohmann::json::array());
}

}  // namespace
}  // namespace corro::dashboard
