#include "launch/job_course.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "launch/rank_start.h"

namespace corro::launch {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

/// Two hosts with a rank each.
JobFacts job() {
  JobFacts facts;
  facts.ranks = 2;
  facts.hosts.resize(2);
  facts.hosts[0].name = "node1";
  facts.hosts[1].name = "node2";
  facts.hosts[1].first_rank = 1;
  return facts;
}

class JobCourseTest : public testing::Test {
 protected:
  static JobCourse course(JobCourse::Options options = {}) {
    options.several_hosts = true;
    return {job(), new_members(wire::digest_of("job"), 2), std::move(options), Time{}};
  }
  template <typename Order>
  static std::vector<Order> take(JobCourse& course) {
    std::vector<Order> found;
    for (const JobOrder& order : course.take_orders())
      if (const auto* one = std::get_if<Order>(&order)) found.push_back(*one);
    return found;
  }
  static agent::Ended ended(int status) {
    agent::Ended said;
    said.end.ended = true;
    said.end.status = status;
    return said;
  }
};

TEST_F(JobCourseTest, StartsEachRankOnItsHostAndSaysWhoTheyAre) {
  JobCourse one = course();
  one.begin(Time{});
  const auto orders = one.take_orders();
  ASSERT_EQ(orders.size(), 3U);
  EXPECT_EQ(std::get<StartRank>(orders[0]).seat.host, 0U);
  EXPECT_EQ(std::get<StartRank>(orders[1]).seat.host, 1U);
  EXPECT_EQ(std::get<agent::Members>(std::get<TellAll>(orders[2]).message.body).members.size(), 2U);
  EXPECT_EQ(one.running(), 2);
}

TEST_F(JobCourseTest, AHostThatIsLostBeforeTheStartRefusesTheJob) {
  JobCourse one = course();
  one.lose_host(1, "no route", Time{});
  one.refuse("later");
  EXPECT_EQ(one.refused(), "host node2: no route");
}

TEST_F(JobCourseTest, AHostThatIsLostLaterEndsAJobThatNeedsIt) {
  JobCourse one = course();
  one.begin(Time{});
  (void)one.take_orders();
  one.lose_host(1, "no answer", Time{});
  EXPECT_EQ(one.running(), 1);
  EXPECT_EQ(take<Announce>(one).at(0).event.cause, "host node2 was lost: no answer");
  one.tick(one.wake());
  const auto told = take<TellAll>(one);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(std::get<agent::Signal>(told[0].message.body).number, SIGTERM);
}

TEST_F(JobCourseTest, WhatAnotherHostSaysOfARankIsDropped) {
  JobCourse one = course();
  one.begin(Time{});
  const agent::Message message{one.subject(0), ended(0)};
  one.hear(1, message, Time{});
  EXPECT_EQ(one.running(), 2);
  one.hear(0, message, Time{});
  one.hear(0, message, Time{});
  EXPECT_EQ(one.running(), 1) << "it is said again at the end";
}

TEST_F(JobCourseTest, SaysWhatTheRanksDidWhenTimeWasOver) {
  JobCourse one = course({.timeout = seconds(5)});
  one.begin(Time{});
  (void)one.take_orders();
  one.tick(Time{seconds(5)});
  EXPECT_TRUE(std::holds_alternative<agent::Look>(take<TellAll>(one).at(0).message.body));
  one.tick(one.wake());
  const auto told = take<TellAll>(one);
  EXPECT_EQ(std::get<agent::Signal>(told.at(0).message.body).number, SIGTERM);
  for (const size_t place : {0U, 1U})
    one.hear(place, {one.subject(place), ended(SIGTERM)}, Time{seconds(7)});
  EXPECT_EQ(one.running(), 0);
  const JobCourse::Result result = one.result(Time{seconds(7)});
  EXPECT_TRUE(result.timed_out);
  EXPECT_FALSE(result.ends.at(0).ended) << "as it was then";
}

TEST_F(JobCourseTest, TheFirstSignalIsPassedOnAndTheThirdWaitsForNothing) {
  JobCourse one = course();
  one.begin(Time{});
  (void)one.take_orders();
  one.on_signal(SIGINT, Time{});
  EXPECT_EQ(std::get<agent::Signal>(take<TellAll>(one).at(0).message.body).number, SIGINT);
  EXPECT_EQ(one.asked(), SIGINT);
  one.on_signal(SIGINT, Time{});
  EXPECT_FALSE(one.impatient());
  one.on_signal(SIGINT, Time{});
  EXPECT_TRUE(one.impatient());
  one.fence();
  EXPECT_EQ(std::get<agent::Fence>(take<TellAll>(one).at(0).message.body).grace, Duration::zero());
}

TEST_F(JobCourseTest, AProcessThatJoinsAndDoesNotStartHarmsNobody) {
  JobFacts facts = job();
  facts.most = 3;
  facts.hosts[1].spare = 1;
  JobCourse one(facts, new_members(wire::digest_of("job"), 3),
                {.elastic = coord::Options{.least = 1, .most = 3}}, Time{});
  one.begin(Time{});
  one.tick(Time{});
  const auto started = take<StartRank>(one);
  ASSERT_EQ(started.size(), 3U);
  EXPECT_TRUE(started[2].joins);
  one.hear(1, {started[2].about, agent::Refused{.why = "no such program"}}, Time{});
  EXPECT_TRUE(one.refused().empty());
  EXPECT_EQ(one.running(), 3) << "another one is started";
  EXPECT_THAT(take<Note>(one).at(0).line, HasSubstr("rank 2 does not start: no such program"));
}

}  // namespace
}  // namespace corro::launch
