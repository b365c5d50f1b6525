#include "launch/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace corro::launch {
namespace {

using testing::HasSubstr;

TEST(Event, IsOneLineOfJsonWithTheFixedKeys) {
  const Event event{.kind = EventKind::kFailure,
                    .epoch = 2,
                    .host = "node7",
                    .rank = 3,
                    .place = 5,
                    .step = 17,
                    .cause = "ValueError: a\nb \xFF"};
  const std::string line = format_event(event, 1.5);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_THAT(line, HasSubstr(R"({"time":1.5,"event":"failure","epoch":2,"host":"node7","rank":3,)"
                              R"("place":5,"step":17,"cause":"ValueError: a\nb )"));
  EXPECT_EQ(format_event({.kind = EventKind::kStarted}, 0),
            R"({"time":0.0,"event":"started","epoch":0,"host":null,"rank":null,"place":null,)"
            R"("step":null,"cause":null})"
            "\n");
}

TEST(Event, EachKindHasANameOfItsOwn) {
  std::vector<std::string_view> names;
  for (int kind = 0; kind <= static_cast<int>(EventKind::kFailure); ++kind)
    names.push_back(name_of(static_cast<EventKind>(kind)));
  EXPECT_THAT(names, testing::ElementsAre(
                         "started", "joined", "step", "checkpoint", "plan", "training", "waiting",
                         "ended", "lost", "server_lost", "server_started", "server_left", "prepare",
                         "epoch", "policy", "fenced", "host", "lead", "stopped", "failure"));
}

TEST(EventFile, TheTimeIsThatOfTheEventAndNotOfTheWord) {
  const std::string path = testing::TempDir() + "old-events.jsonl";
  auto file = EventFile::create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->append({.kind = EventKind::kCheckpoint, .age = std::chrono::hours(1)}).ok());
  ASSERT_TRUE(file->append({.kind = EventKind::kStep}).ok());
  std::ifstream lines(path);
  std::string first;
  std::string second;
  ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second));
  const auto time_of = [](const std::string& line) {
    return nlohmann::json::parse(line).at("time").get<double>();
  };
  EXPECT_NEAR(time_of(second) - time_of(first), 3600, 600);
}

TEST(EventFile, HasEveryEventAtOnceAndNoneOfAnEarlierJob) {
  const std::string path = testing::TempDir() + "events.jsonl";
  for (int job = 0; job < 2; ++job) {
    auto file = EventFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->append({.kind = EventKind::kStarted, .rank = 0}).ok());
    ASSERT_TRUE(file->append({.kind = EventKind::kEnded, .rank = 0}).ok());
    std::ifstream lines(path);
    std::string first;
    std::string second;
    std::string none;
    ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second));
    EXPECT_FALSE(std::getline(lines, none));
    EXPECT_EQ(nlohmann::json::parse(first)["event"], "started");
    EXPECT_EQ(nlohmann::json::parse(second)["event"], "ended");
  }
}

TEST(EventFile, IsNoPipeThatNobodyReads) {
  const std::string pipe = testing::TempDir() + "events.pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(EventFile::create(pipe).status().message(), HasSubstr("nobody reads this pipe"));
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_TRUE(EventFile::create(pipe).ok());
  close(reader);
  unlink(pipe.c_str());
}

TEST(EventFile, SaysOnceThatNothingCanBeWritten) {
  EXPECT_THAT(EventFile::create("/no/such/folder/x").status().message(),
              HasSubstr("--events /no/such/folder/x"));
  auto full = EventFile::create("/dev/full");
  ASSERT_TRUE(full.ok());
  EXPECT_THAT(full->append({}).message(), HasSubstr("/dev/full"));
  EXPECT_TRUE(full->append({}).ok());
}

}  // namespace
}  // namespace corro::launch
