#include "dashboard/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "dashboard/board_json.h"
#include "dashboard/board_text.h"
#include "dashboard/replay.h"

namespace corro::dashboard {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr UnixTime kBegun{seconds(1000)};
constexpr const char* kPlan =
    R"({"text":"one stage","why":"","limiting":"computing","step_seconds":0.5,"schedule":"1f1b",)"
    R"("micro_batches":4,"chunks":1,"terms":[["sync",0.1,0.2]],"measured_seconds":null,"stages":)"
    R"([{"layers":[0,4],"ranks":"0-1","memory_bytes":6,"limit_bytes":8,"forward_seconds":0.1,)"
    R"("backward_seconds":0.2}]})";

/// Two ranks in this step.
JobPicture picture_in(uint64_t step) {
  JobPicture made{.job = "3f2a",
                  .command = "train.py",
                  .state = JobState::kRunning,
                  .summary = "2 ranks run; step " + std::to_string(step),
                  .epoch = 3,
                  .started = kBegun,
                  .lost = 1};
  for (const int place : {0, 2})
    made.ranks.push_back({.place = place,
                          .rank = place / 2,
                          .member = "00ff",
                          .host = "node1",
                          .state = RankState::kRunning,
                          .step = step,
                          .operation = "allreduce",
                          .phase = "transfer",
                          .awaits = place == 0 ? 2 : -1,
                          .pid = 4711});
  return made;
}

std::string text_of_job() {
  HistoryWriter writer;
  std::string text = writer.begin(picture_in(0));
  text += writer.show(picture_in(1), kBegun + seconds(1));
  text +=
      writer.hear({.at = kBegun + seconds(2), .kind = "ended", .place = 2, .cause = "status 3"});
  text += writer.hear({.at = kBegun + seconds(2), .kind = "step", .place = 0});
  JobPicture last = picture_in(9);
  last.ranks[1].state = RankState::kFailed;
  last.ranks[1].cause = "status 3";
  last.ranks[1].step.reset();
  last.ranks[0].values = {{"loss", 0.25, 9}, {"gap", std::numeric_limits<double>::infinity(), 8}};
  last.ranks[0].of = last.ranks[0].done = 9;
  last.ranks[0].step_seconds = 0.5;
  last.ranks[0].wait_share = 0.25;
  last.state = JobState::kFailed;
  return text + writer.end(last, kBegun + seconds(4));
}

TEST(History, IsWhatTheBoardWas) {
  const auto history = History::read(text_of_job());
  ASSERT_TRUE(history.ok()) << history.status().message();
  EXPECT_EQ(history->begin(), kBegun);
  EXPECT_EQ(history->end(), kBegun + seconds(4));
  EXPECT_EQ(history->note(), "");
  Board board;
  board.show(picture_in(1), kBegun + seconds(1));
  EXPECT_EQ(write_job(history->at(kBegun + seconds(1)), kBegun), write_job(board, kBegun));
  EXPECT_THAT(history->at(kBegun + seconds(1)).happenings(), IsEmpty());
  EXPECT_THAT(history->at(kBegun + seconds(2)).happenings(), SizeIs(1));
  EXPECT_THAT(history->at(kBegun).picture().ranks, IsEmpty());
  const Board end = history->at(history->end());
  EXPECT_EQ(end.picture().state, JobState::kFailed);
  EXPECT_EQ(end.picture().ranks[0].step, 9U);
  EXPECT_EQ(end.picture().ranks[0].awaits, 2);
  const RankRow& first = end.picture().ranks[0];
  EXPECT_EQ(first.values.at(0), (LoggedValue{"loss", 0.25, 9}));
  EXPECT_EQ(first.values.at(1).value, std::numeric_limits<double>::infinity());
  EXPECT_EQ(first.of, 9U);
  EXPECT_EQ(first.done, 9U);
  EXPECT_EQ(first.step_seconds, 0.5);
  EXPECT_EQ(first.wait_share, 0.25);
  EXPECT_THAT(end.courses(), SizeIs(2));
  EXPECT_EQ(end.picture().ranks[1].cause, "status 3");
  EXPECT_FALSE(end.picture().ranks[1].step) << "a field may go";
  EXPECT_EQ(end.happenings().front().cause, "status 3");
}

TEST(History, HasThePlanOnceUntilItChanges) {
  HistoryWriter writer;
  JobPicture picture = picture_in(1);
  std::string text = writer.begin(picture);
  picture.plan = kPlan;
  text += writer.show(picture, kBegun + seconds(1));
  picture.plan.replace(picture.plan.find("null"), 4, "0.75");
  const std::string same = writer.show(picture, kBegun + seconds(2));
  EXPECT_THAT(text, HasSubstr("one stage"));
  EXPECT_THAT(same, Not(HasSubstr("one stage"))) << "but for what is measured";
  const auto history = History::read(text + same + writer.end(picture, kBegun + seconds(3)));
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(plan_or_null(history->at(kBegun + seconds(2)).picture().plan), plan_or_null(kPlan));
  EXPECT_EQ(plan_or_null(history->at(kBegun + seconds(3)).picture().plan),
            plan_or_null(picture.plan));
  EXPECT_FALSE(plan_or_null(kPlan).is_null());
}

TEST(History, APlanThatThePageCannotDrawIsNone) {
  const auto with = [](const char* from, const char* to) {
    std::string text = kPlan;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return plan_or_null(text.replace(at, std::string(from).size(), to));
  };
  EXPECT_FALSE(with("one stage", "<img src=x>").is_null()) << "it is text";
  EXPECT_TRUE(with("[0,4]", "[0]").is_null());
  EXPECT_TRUE(with("[0,4]", "[0,-4]").is_null());
  EXPECT_TRUE(with(R"("text")", R"("txt")").is_null());
  EXPECT_TRUE(with("0.5,", "-0.5,").is_null());
  EXPECT_TRUE(with(R"(["sync",0.1,0.2])", R"(["sync",0.1])").is_null());
  EXPECT_TRUE(plan_or_null("").is_null());
  EXPECT_TRUE(plan_or_null("[]").is_null());
}

TEST(History, ALineHasWhatHasChanged) {
  HistoryWriter writer;
  (void)writer.begin(picture_in(0));
  (void)writer.show(picture_in(1), kBegun);
  JobPicture next = picture_in(1);
  next.ranks[1].step = 2;
  const auto line = nlohmann::json::parse(writer.show(next, kBegun + seconds(1)));
  EXPECT_EQ(line["ranks"], nlohmann::json::parse(R"([{"place": 2, "step": 2}])"));
}

TEST(History, GoesOnInTheSameFile) {
  HistoryWriter other;
  std::string text = text_of_job() + other.begin(picture_in(0));
  text += other.show(picture_in(20), kBegun + seconds(9));
  const auto history = History::read(text);
  EXPECT_EQ(history->end(), kBegun + seconds(9));
  EXPECT_EQ(history->at(history->end()).picture().ranks[1].step, 20U);
  EXPECT_EQ(history->at(history->end()).picture().ranks[1].cause, "");
}

TEST(History, OfManyLinesAnyTimeIsFound) {
  HistoryWriter writer;
  std::string text = writer.begin(picture_in(0));
  for (int i = 1; i <= 20'000; ++i)
    text += writer.show(picture_in(static_cast<uint64_t>(i)), kBegun + seconds(i));
  ASSERT_GT(text.size(), 2U << 20U);
  const auto history = History::read(text);
  for (const int at : {1, 9'999, 20'000})
    EXPECT_EQ(history->at(kBegun + seconds(at)).picture().ranks[0].step, static_cast<uint64_t>(at));
}

TEST(History, WhatIsCutOffIsSaid) {
  const std::string text = text_of_job();
  const auto cut = History::read(text.substr(0, text.size() - 5));
  ASSERT_TRUE(cut.ok());
  EXPECT_THAT(cut->note(), HasSubstr("last line of the history is cut off"));
  EXPECT_EQ(cut->end(), kBegun + seconds(2));
  std::string damaged = text;
  damaged.insert(damaged.find("{\"event\""), "{\"time\":1e99}\n");
  EXPECT_THAT(History::read(damaged)->note(), HasSubstr("Line 3 of the history is damaged"));
}

TEST(History, AnotherFileIsRefused) {
  for (const char* other : {"", "\n", "no json\n", "[]\n", "{}\n", R"({"event":{}})"})
    EXPECT_THAT(History::read(other).status().message(), HasSubstr("no history")) << other;
  EXPECT_THAT(History::read("{\"corro_history\":2}\n").status().message(),
              HasSubstr("it is of version 2"));
  EXPECT_THAT(History::read("{\"corro_history\":1}\n").status().message(), HasSubstr("damaged"));
  EXPECT_FALSE(History::read("{\"corro_history\":1,\"time\":5}").ok()) << "cut off";
}

TEST(History, ItsFieldsAreChecked) {
  const std::string first = "{\"corro_history\":1,\"time\":5}\n";
  for (const char* row : {"7", "{}", R"({"place":-1})", R"({"place":70000})", R"({"place":"0"})",
                          R"({"place":0,"state":"asleep"})", R"({"place":0,"step":-1})",
                          R"({"place":0,"host":7})", R"({"place":0,"pid":99999999999})"}) {
    const auto history =
        History::read(first + "{\"time\":6,\"ranks\":[" + row + "]}\n{\"time\":7}\n");
    ASSERT_TRUE(history.ok()) << row;
    EXPECT_THAT(history->note(), HasSubstr("Line 2")) << row;
  }
}

TEST(History, PicturesAreThinnedOutAndTheFileIsBounded) {
  EXPECT_EQ(pause_after(500, seconds(0)), seconds(1));
  EXPECT_EQ(pause_after(64U << 10U, seconds(0)), seconds(37));
  EXPECT_EQ(pause_after(500, hours(24 * 30)), seconds(206));
  EXPECT_EQ(pause_after(500, seconds(-9)), seconds(1)) << "a clock may be set back";
  HistoryWriter writer;
  (void)writer.begin(picture_in(0));
  JobPicture large = picture_in(1);
  large.summary = std::string(1U << 20U, 'x');
  uint64_t bytes = 0;
  for (int i = 0; i < 60; ++i) bytes += writer.show(large, kBegun).size();
  EXPECT_LE(bytes, kMostPictureBytes);
  EXPECT_GT(bytes, kMostPictureBytes - (2U << 20U));
  const Happening happening{.kind = "ended", .cause = std::string(1U << 20U, 'x')};
  EXPECT_NE(writer.hear(happening), "") << "events go on";
  for (int i = 0; i < 20; ++i) bytes += writer.hear(happening).size();
  EXPECT_LE(bytes, kMostHistoryBytes);
  EXPECT_NE(writer.end(large, kBegun), "") << "and the end is always there";
  EXPECT_EQ(writer.due(), UnixTime::max());
}

TEST(Replay, IsAskedForATime) {
  const auto history = History::read(text_of_job());
  const auto ask = [&](const char* at) {
    return nlohmann::json::parse(replay_page(*history, at).text);
  };
  EXPECT_EQ(ask("")["state"], "failed");
  EXPECT_EQ(ask("")["history"],
            nlohmann::json::parse(R"({"from": 1000.0, "to": 1004.0, "note": null})"));
  EXPECT_EQ(ask("1001.5")["state"], "running");
  EXPECT_EQ(ask("1001.5")["now"], 1001.5);
  EXPECT_EQ(ask("1")["now"], 1000) << "not before the first line";
  EXPECT_EQ(ask("99999")["now"], 1004);
  for (const char* wrong : {"x", "-1", "[]", "\"1\"", "1e99", "nan"})
    EXPECT_EQ(replay_page(*history, wrong).status, 400) << wrong;
}

TEST(History, KeepsLinksAndTables) {
  JobPicture picture = picture_in(5);
  HistoryWriter writer;
  std::string text = writer.begin(picture);
  picture.links = {{.member = "m0", .from = "a", .to = "b", .bytes = 100},
                   {.member = "m1", .from = "a", .to = "", .bytes = 11}};
  picture.tables = {{.table = "users",
                     .server = 1,
                     .host = "b",
                     .rows = 70,
                     .bytes = 4480,
                     .shards = 8,
                     .steps = 5,
                     .pulls = 11,
                     .pulled_rows = 33,
                     .pushes = 12,
                     .pushed_rows = 24,
                     .pull_p99 = std::chrono::microseconds(250)}};
  text += writer.show(picture, kBegun + seconds(1));
  picture.links[0].bytes = 40;  // Of another engine.
  const std::string same = writer.show(picture, kBegun + seconds(2));
  EXPECT_EQ(same.find("tables"), std::string::npos) << "they have not changed";
  text += same;
  picture.tables.clear();
  text += writer.end(picture, kBegun + seconds(3));
  const auto history = History::read(text);
  ASSERT_TRUE(history.ok()) << history.status().message();
  const Board board = history->at(kBegun + seconds(2));
  const auto links = board.links().all();
  ASSERT_EQ(links.size(), 2U);
  EXPECT_EQ(links[0].to, "");
  EXPECT_EQ(links[0].bytes, 11U);
  EXPECT_EQ(links[1].to, "b");
  EXPECT_EQ(links[1].bytes, 140U);
  EXPECT_DOUBLE_EQ(links[1].bytes_per_second, 40);
  ASSERT_EQ(board.picture().tables.size(), 1U);
  const TablePart& part = board.picture().tables[0];
  EXPECT_EQ(part.table, "users");
  EXPECT_EQ(part.pushed_rows, 24U);
  EXPECT_EQ(part.pull_p99, std::chrono::microseconds(250));
  EXPECT_TRUE(history->at(kBegun + seconds(3)).picture().tables.empty());
}

TEST(History, ALineWithOtherLinksOrTablesIsDamaged) {
  const JobPicture picture = picture_in(5);
  HistoryWriter writer;
  const std::string begin = writer.begin(picture) + writer.show(picture, kBegun + seconds(1));
  for (const char* field : {R"("links":5)", R"("links":[[]])", R"("links":[{"bytes":-1}])",
                            R"("tables":[{"server":"a"}])",
                            R"("tables":[{"pull_p99_seconds":1e300}])", R"("tables":{"a":1})"}) {
    const std::string line = fmt::format("{{\"time\":{},{}}}\n", seconds_of(kBegun) + 2, field);
    const auto history = History::read(begin + line + line);
    ASSERT_TRUE(history.ok());
    EXPECT_NE(history->note().find("damaged"), std::string::npos) << field;
  }
}

}  // namespace
}  // namespace corro::dashboard
