#include "launch/opening.h"

#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using std::chrono::seconds;

LaunchPlan plan_of_other_hosts(bool resumed) {
  LaunchPlan plan;
  for (const std::string name : {"a", "b"}) {
    JobHost& host = plan.job.hosts.emplace_back();
    host.name = name;
    host.own = false;
  }
  plan.job.log_dir = testing::TempDir() + "opening";
  plan.dialled = true;
  plan.resumed = resumed;
  return plan;
}

Agents agents_of(const LaunchPlan& plan) {
  Agents::Options options;
  options.dialled = true;
  return Agents::create(plan.job.hosts, std::move(options)).value();
}

/// Of two hosts, whose agents have not dialled yet.
struct Opened {
  LaunchPlan plan;
  Showroom room = Showroom::create("--dashboard", "").value();
  Job job;
  Leadership leadership{nullptr};
  Opening opening{job, leadership, std::nullopt};

  explicit Opened(bool resumed = false)
      : plan(plan_of_other_hosts(resumed)),
        job({.plan = plan,
             .version = "1",
             .loop = io::Loop::create().value(),
             .agents = agents_of(plan),
             .caller = std::nullopt,
             .files = JobOutput::open_files(plan).value(),
             .writer = screen::ScreenWriter::create().value(),
             .policy = nullptr,
             .display = JobDisplay::open(plan, room).value()}) {}
};

TEST(Opening, GivesHostsSomeTimeToAnswer) {
  Opened at;
  const Time now = monotonic_now();
  at.opening.meet(now);
  EXPECT_TRUE(at.opening.waits());
  EXPECT_TRUE(at.opening.advance().ok());
  EXPECT_EQ(at.opening.deadline(), now + seconds(20));
  at.opening.excuse(seconds(3));
  EXPECT_EQ(at.opening.deadline(), now + seconds(23));
  at.opening.wait_longer(now + seconds(5));
  EXPECT_EQ(at.opening.deadline(), now + seconds(25));
}

TEST(Opening, NamesAHostThatDoesNotAnswer) {
  Opened at;
  at.opening.meet(monotonic_now() - seconds(21));
  EXPECT_EQ(at.opening.advance().message(), "host a: no answer for 20 s");
  EXPECT_EQ(at.job.course.refused_hosts().size(), 2U) << "nor does b";
}

TEST(Opening, WaitsForNobodyOnceTheJobIsRefused) {
  Opened at;
  at.opening.meet(monotonic_now());
  at.job.course.refuse("host b is not there");
  EXPECT_EQ(at.opening.advance().message(), "host b is not there");
  EXPECT_EQ(at.opening.deadline(), Time::never());
}

TEST(Opening, OfAJobThatGoesOnIsReadyAtOnce) {
  Opened at(/*resumed=*/true);
  at.opening.meet(monotonic_now());
  EXPECT_FALSE(at.opening.waits());
  EXPECT_TRUE(at.opening.advance().ok());
  EXPECT_TRUE(at.opening.ready());
}

TEST(Opening, WaitsForNobodyOnceHostsHaveMet) {
  Opened at(/*resumed=*/true);
  at.opening.wait_longer(monotonic_now());  // For one that comes while ranks run.
  EXPECT_EQ(at.opening.deadline(), Time::never());
}

}  // namespace
}  // namespace corro::launch
