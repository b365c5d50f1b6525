#include "kube/user/autoscaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace corro::kube {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

/// A job, and a cluster that has so many pods for it; time passes in looks, of five seconds each.
struct Play {
  size_t target = 2;
  size_t room = 100;
  std::function<double(size_t)> steps_per_second;
  Autoscaler autoscaler;
  Json job = Json::parse(R"({"spec": {"worker": {"min": 1, "max": 16, "slots": 1}},
      "status": {"progress": {"epoch": 0, "ranks": 0, "step": 0}}})");
  Time now{minutes(1)};
  double step = 0;
  std::vector<std::string> reasons = {};

  void look() {
    now = now + seconds(5);
    Json& progress = job["status"]["progress"];
    const size_t pods = std::min(target, room);
    if (progress["ranks"] != pods) progress["epoch"] = progress["epoch"].get<int>() + 1;
    const double rate = steps_per_second(pods);
    step += 5 * rate;
    progress["ranks"] = pods;
    progress["step"] = static_cast<int64_t>(step);
    progress["stepsPerSecond"] = rate;
    job["spec"]["worker"]["target"] = target;
    const auto sizing = autoscaler.look(job, now);
    ASSERT_TRUE(sizing.ok()) << sizing.status().message();
    if (!*sizing) return;
    target = (*sizing)->workers;
    reasons.push_back((*sizing)->why);
  }
  void look_for(Duration time) {
    for (const Time end = now + time; now < end;) look();
  }
};

TEST(Autoscaler, GrowsAJobThatScalesToItsLimit) {
  Play play{.steps_per_second = [](size_t) { return 10.0; }, .autoscaler = Autoscaler({})};
  play.look_for(minutes(30));
  EXPECT_EQ(play.target, 16U);
  ASSERT_FALSE(play.reasons.empty());
  EXPECT_THAT(play.reasons[0], HasSubstr("grows from 2"));
}

TEST(Autoscaler, TakesBackWorkersThatAddNothing) {
  // One batch for all: with more than four ranks a step takes no less time.
  Play play{.target = 8,
            .steps_per_second =
                [](size_t n) { return 4.0 * static_cast<double>(std::min(n, size_t{4})); },
            .autoscaler = Autoscaler({.has_global_batch = true})};
  play.look_for(minutes(40));
  EXPECT_EQ(play.target, 4U);
}

TEST(Autoscaler, AsksForWhatTheClusterHasAfterARefusal) {
  Play play{
      .room = 3, .steps_per_second = [](size_t) { return 10.0; }, .autoscaler = Autoscaler({})};
  play.look_for(minutes(4));
  EXPECT_EQ(play.target, 3U);
}

TEST(Autoscaler, DoesNothingWhileNothingRuns) {
  Play play{
      .room = 0, .steps_per_second = [](size_t) { return 0.0; }, .autoscaler = Autoscaler({})};
  play.look_for(minutes(20));
  EXPECT_EQ(play.target, 2U);
}

TEST(Autoscaler, RefusesAJobThatIsNotElastic) {
  Autoscaler autoscaler({});
  const Json job = Json::parse(R"({"spec": {"worker": {"target": 2}}})");
  EXPECT_EQ(autoscaler.look(job, Time{}).status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace corro::kube
