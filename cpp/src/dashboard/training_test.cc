#include "dashboard/training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace corro::dashboard {
namespace {

using std::chrono::seconds;

constexpr UnixTime kClock{seconds(1000)};
constexpr double kEndless = std::numeric_limits<double>::infinity();

RankRow rank_in(uint64_t step, std::vector<LoggedValue> values = {}) {
  return {.state = RankState::kRunning, .step = step, .values = std::move(values)};
}

JobPicture job_in(uint64_t step, std::optional<uint64_t> of = {}) {
  JobPicture job{.state = JobState::kRunning, .ranks = {rank_in(step), rank_in(step)}};
  job.ranks[1].of = of;
  job.ranks[1].done = of ? std::optional(step) : std::nullopt;
  return job;
}

/// A step each so many seconds, seen once a second, from a time in the middle of one.
std::vector<StepPoint> steps_each(int length, int until) {
  std::vector<StepPoint> steps;
  for (int second = length / 2; second <= until; ++second)
    steps.push_back({kClock + seconds(second), static_cast<uint64_t>(second / length)});
  return steps;
}

TEST(Metrics, AreTheMeanOfTheRanksNewestValues) {
  const auto metrics = metrics_of(
      {rank_in(4, {{"loss", 0.5, 4}, {"accuracy", 0.9, 3}}), rank_in(5, {{"loss", 0.7, 5}})});
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[0].name, "loss");
  EXPECT_DOUBLE_EQ(metrics[0].mean, 0.6);
  EXPECT_EQ(metrics[0].least, 0.5);
  EXPECT_EQ(metrics[0].most, 0.7);
  EXPECT_EQ(metrics[0].step, 5U);
  EXPECT_EQ(metrics[0].ranks, 2U);
  EXPECT_EQ(metrics[1].ranks, 1U);
  EXPECT_EQ(metrics[1].mean, 0.9);
}

TEST(Metrics, WhoIsGoneCountsNoMoreUntilAllAre) {
  std::vector<RankRow> ranks = {rank_in(4, {{"loss", 0.5, 4}}), rank_in(2, {{"loss", 9, 2}})};
  ranks[1].state = RankState::kFailed;
  EXPECT_EQ(metrics_of(ranks).at(0).mean, 0.5);
  ranks[0].state = RankState::kDone;
  EXPECT_EQ(metrics_of(ranks).at(0).mean, 4.75);
}

TEST(Metrics, OneThatIsNoNumberShows) {
  const auto none = metrics_of({rank_in(1, {{"x", 1, 1}}), rank_in(1, {{"x", std::nan(""), 1}})});
  EXPECT_TRUE(std::isnan(none.at(0).mean));
  EXPECT_EQ(none.at(0).least, 1);
  const auto all = metrics_of({rank_in(1, {{"x", kEndless, 1}}), rank_in(1, {{"x", 2, 1}})});
  EXPECT_EQ(all.at(0).mean, kEndless);
  EXPECT_EQ(all.at(0).least, 2);
}

TEST(Metrics, HaveABoundHoweverRanksCallThem) {
  std::vector<RankRow> ranks;
  for (int i = 0; i < 100; ++i)
    ranks.push_back(rank_in(1, {{"of rank " + std::to_string(i), 1, 1}}));
  EXPECT_EQ(metrics_of(ranks).size(), kMostNames);
}

TEST(Progress, IsNoneBeforeAStep) {
  EXPECT_FALSE(progress_of({.ranks = {{.state = RankState::kRunning}}}, {}, kClock));
}

TEST(Progress, TellsHowLongTheRestTakes) {
  const auto steps = steps_each(4, 80);
  const auto progress = progress_of(job_in(20, 100), steps, kClock + seconds(81));
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->step, 20U);
  EXPECT_EQ(progress->of, 100U);
  EXPECT_DOUBLE_EQ(progress->steps_per_second.value(), 0.25);
  EXPECT_DOUBLE_EQ(progress->eta_seconds.value(), 320);
}

TEST(Progress, WithoutTheNumberOfStepsThereIsOnlyTheSpeed) {
  const auto progress = progress_of(job_in(20), steps_each(4, 80), kClock + seconds(81));
  EXPECT_DOUBLE_EQ(progress->steps_per_second.value(), 0.25);
  EXPECT_FALSE(progress->of);
  EXPECT_FALSE(progress->eta_seconds);
}

TEST(Progress, StandsStillOnceNothingComesForLong) {
  const auto steps = steps_each(4, 80);
  EXPECT_GT(progress_of(job_in(20, 100), steps, kClock + seconds(92))->steps_per_second, 0.0);
  const auto standing = progress_of(job_in(20, 100), steps, kClock + seconds(93));
  EXPECT_EQ(standing->steps_per_second, 0.0) << "three steps' time is over";
  EXPECT_FALSE(standing->eta_seconds);
}

TEST(Progress, AJobThatGoesBackBeginsAnew) {
  auto steps = steps_each(1, 60);
  for (int second = 61; second <= 69; ++second)
    steps.push_back({kClock + seconds(second), static_cast<uint64_t>(second - 61) / 2});
  const auto progress = progress_of(job_in(4, 100), steps, kClock + seconds(69));
  EXPECT_DOUBLE_EQ(progress->steps_per_second.value(), 0.5);
}

TEST(Progress, BeforeStepsWereSeenTheSlowestRankSaysIt) {
  JobPicture job = job_in(20, 30);
  job.ranks[0].step_seconds = 2;
  job.ranks[1].step_seconds = 4;
  const auto progress = progress_of(job, {}, kClock);
  EXPECT_DOUBLE_EQ(progress->steps_per_second.value(), 0.25);
  EXPECT_DOUBLE_EQ(progress->eta_seconds.value(), 40);
}

TEST(Progress, CountsAsTheProgramDoesAndEndsAtTheEnd) {
  JobPicture job = job_in(20, 9000);
  job.ranks[1].done = 8000;
  EXPECT_EQ(progress_of(job, {}, kClock)->step, 8000U);
  job.ranks[1].done = 9001;
  job.ranks[1].step_seconds = 1;
  EXPECT_EQ(progress_of(job, {}, kClock)->eta_seconds, 0.0);
  job.state = JobState::kDone;
  EXPECT_FALSE(progress_of(job, {}, kClock)->eta_seconds);
  EXPECT_FALSE(progress_of(job, {}, kClock)->steps_per_second);
}

TEST(Progress, IsSaidInWordsForPeople) {
  EXPECT_EQ(describe_eta(0), "about 0 s left");
  EXPECT_EQ(describe_eta(89), "about 89 s left");
  EXPECT_EQ(describe_eta(12 * 60), "about 12 min left");
  EXPECT_EQ(describe_eta(3.0 * 3600), "about 3 h left");
  EXPECT_EQ(describe_eta(10.0 * 24 * 3600), "about 10 days left");
}

}  // namespace
}  // namespace corro::dashboard
