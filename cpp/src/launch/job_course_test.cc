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

TEST_F(JobCourseTest, AHostThatIsAboutToGoIsFencedOnceNothingRunsThere) {
  JobCourse one = course({.elastic = coord::Options{.least = 1}});
  one.begin(Time{});
  (void)one.take_orders();
  one.hear_host(1, {{}, agent::Leaving{}}, Time{});
  EXPECT_TRUE(take<TellHost>(one).empty());
  for (const size_t place : {0U, 1U})
    one.hear(place, {one.subject(place), agent::ReadyForEpoch{.epoch = 1}}, Time{});
  (void)one.take_orders();
  one.hear(1, {one.subject(1), ended(SIGKILL)}, Time{});
  const auto told = take<TellHost>(one);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].host, 1U);
  EXPECT_TRUE(std::holds_alternative<agent::Fence>(told[0].message.body));
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

TEST_F(JobCourseTest, ACheckpointIsAnEventWithItsOwnStepAndAge) {
  JobCourse one = course();
  one.begin(Time{});
  (void)one.take_orders();
  agent::Seen seen;
  seen.end.flight = obs::ProcessSnapshot{.step = 205};
  one.hear(1, {one.subject(1), seen}, Time{});
  (void)one.take_orders();
  const agent::Notice made{{.step = 200, .text = "/run/step-200"}, seconds(3)};
  one.hear(1, {one.subject(1), made}, Time{});
  const auto said = take<Announce>(one);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].event.kind, EventKind::kCheckpoint);
  EXPECT_EQ(said[0].event.rank, 1);
  EXPECT_EQ(said[0].event.host, "node2");
  EXPECT_EQ(said[0].event.step, 200U);
  EXPECT_EQ(said[0].event.cause, "/run/step-200");
  EXPECT_EQ(said[0].event.age, seconds(3));
}

TEST_F(JobCourseTest, WhatAPlanDecidesIsKeptForThoseWhoLook) {
  JobCourse one = course();
  one.begin(Time{});
  (void)one.take_orders();
  const auto tell = [&](size_t place, const char* text, Duration age) {
    const agent::Notice told{{.kind = wire::NoticeKind::kDecisions, .text = text}, age};
    one.hear(place, {one.subject(place), told}, Time{seconds(100)});
  };
  tell(1, "{}", seconds(3));
  EXPECT_TRUE(take<Announce>(one).empty()) << "that it is loaded is said by itself";
  EXPECT_EQ(one.plan(), "{}");
  tell(0, "older", seconds(4));
  tell(0, "", seconds(0));
  EXPECT_EQ(one.plan(), "{}");
  tell(0, "newer", seconds(2));
  EXPECT_EQ(one.plan(), "newer");
}

TEST_F(JobCourseTest, APlanIsAnEventWithItsNameInTheStepThatTheRankIsIn) {
  JobCourse one = course();
  one.begin(Time{});
  agent::Seen seen;
  seen.end.flight = obs::ProcessSnapshot{.step = 205};
  one.hear(1, {one.subject(1), seen}, Time{});
  (void)one.take_orders();
  const agent::Notice loaded{{.kind = wire::NoticeKind::kPlan, .text = "two stages"}};
  one.hear(1, {one.subject(1), loaded}, Time{});
  const auto said = take<Announce>(one);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].event.kind, EventKind::kPlan);
  EXPECT_EQ(said[0].event.rank, 1);
  EXPECT_EQ(said[0].event.step, 205U);
  EXPECT_EQ(said[0].event.cause, "two stages");
}

TEST_F(JobCourseTest, WhatTrainingSaysIsAnEventOfItsStep) {
  JobCourse one = course();
  one.begin(Time{});
  (void)one.take_orders();
  const agent::Notice notice{
      {.kind = wire::NoticeKind::kTraining, .step = 40, .text = "a step takes 20 ms"}};
  one.hear(1, {one.subject(1), notice}, Time{});
  const auto said = take<Announce>(one);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].event.kind, EventKind::kTraining);
  EXPECT_EQ(name_of(said[0].event.kind), "training");
  EXPECT_EQ(said[0].event.step, 40U);
  EXPECT_EQ(said[0].event.cause, "a step takes 20 ms");
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

TEST_F(JobCourseTest, EventsSayWhyAJobThatMayGoOnDoesNot) {
  JobCourse one = course({.elastic = coord::Options{.least = 2}});
  one.begin(Time{});
  (void)one.take_orders();
  one.hear(1, {one.subject(1), ended(SIGKILL)}, Time{});
  const auto said = take<Announce>(one);
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[0].event.kind, EventKind::kEnded);
  EXPECT_EQ(said[0].event.place, 1);
  EXPECT_EQ(said[1].event.kind, EventKind::kStopped);
  EXPECT_THAT(said[1].event.cause, HasSubstr("1 rank is left, at least 2 are needed"));
}

TEST_F(JobCourseTest, WhatBecomesOfHostsIsAnEvent) {
  JobCourse one = course({.elastic = coord::Options{.least = 1}});
  one.tell_of_host("node3", "is there");
  const auto orders = one.take_orders();
  ASSERT_EQ(orders.size(), 2U);
  EXPECT_EQ(std::get<Note>(orders[0]).line, "corro: host node3 is there\n");
  EXPECT_EQ(std::get<Announce>(orders[1]).event.kind, EventKind::kHost);
  EXPECT_EQ(std::get<Announce>(orders[1]).event.host, "node3");
}

// -- processes that join --------------------------------------------------------------------------

/// A third process was started, and has not joined yet.
class JoiningCourseTest : public JobCourseTest {
 protected:
  JoiningCourseTest()
      : one_(facts(), new_members(wire::digest_of("job"), 3),
             {.elastic = coord::Options{.least = 1, .most = 3}}, Time{}) {
    one_.begin(Time{});
    one_.tick(Time{});
    const auto started = take<StartRank>(one_);
    EXPECT_EQ(started.size(), 3U);
    EXPECT_TRUE(started.back().joins);
    joiner_ = started.back().about;
  }
  static JobFacts facts() {
    JobFacts facts = job();
    facts.most = 3;
    facts.hosts[1].spare = 1;
    return facts;
  }
  JobCourse one_;
  agent::Subject joiner_;
};

TEST_F(JoiningCourseTest, OneThatDoesNotStartHarmsNobody) {
  one_.hear(1, {joiner_, agent::Refused{.why = "no such program"}}, Time{});
  EXPECT_TRUE(one_.refused().empty());
  EXPECT_EQ(one_.running(), 3) << "another one is started";
  EXPECT_THAT(take<Note>(one_).at(0).line, HasSubstr("rank 2 does not start: no such program"));
}

TEST_F(JoiningCourseTest, PeopleAreToldOfOneThatDies) {
  one_.hear(1, {joiner_, ended(SIGKILL)}, Time{});
  EXPECT_THAT(take<Note>(one_).at(0).line,
              HasSubstr("rank 2 was killed by SIGKILL before it had joined"));
}

TEST_F(JoiningCourseTest, OneThatIsStoppedSinceTheWorkIsDoneIsNoLoss) {
  one_.hear(0, {one_.subject(0), ended(0)}, Time{});
  const auto told = take<TellHost>(one_);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].message.about.member, joiner_.member);
  one_.hear(1, {joiner_, ended(SIGKILL)}, Time{});
  one_.hear(1, {one_.subject(1), ended(0)}, Time{});
  EXPECT_THAT(take<Note>(one_), testing::IsEmpty());
}

// -- after another coordinator --------------------------------------------------------------------

/// The record of the two ranks, and a course that goes on with it.
class ResumedCourseTest : public JobCourseTest {
 protected:
  ResumedCourseTest() : one_(course(elastic())) {
    JobCourse first = course(elastic());
    first.begin(Time{});
    const auto orders = first.take_orders();
    const auto* remember = std::get_if<Remember>(&orders.at(0));
    EXPECT_NE(remember, nullptr) << "before anybody is told anything";
    record_ = remember->record;
    record_.hosts.resize(2);
    for (size_t place = 0; place < 2; ++place) members_.push_back(first.subject(place));
    one_.resume(record_, Time{});
  }
  static JobCourse::Options elastic() {
    return {.elastic = coord::Options{.least = 1}, .remembers = true};
  }
  void say(size_t host, agent::MessageBody body) {
    one_.hear(host, {members_[host], std::move(body)}, Time{});
  }
  void say_all(size_t host) { one_.hear_host(host, {{}, agent::Alive{}}, Time{}); }

  JobRecord record_;
  std::vector<agent::Subject> members_;
  JobCourse one_;
};

TEST_F(ResumedCourseTest, WaitsForAllHostsAndSaysOnceMoreWhoTheMembersAre) {
  say(0, agent::Started{.pid = 7});
  say_all(0);
  EXPECT_TRUE(one_.resuming());
  EXPECT_TRUE(one_.take_orders().empty());
  say(1, agent::Started{.pid = 8});
  say_all(1);
  EXPECT_FALSE(one_.resuming());
  const auto told = take<TellAll>(one_);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(std::get<agent::Members>(told[0].message.body).members.size(), 2U);
  EXPECT_EQ(one_.running(), 2);
  EXPECT_TRUE(one_.evolves());
}

TEST_F(ResumedCourseTest, StartsTheRanksWhereTheRecordAloneWasWritten) {
  for (const uint64_t term : {1U, 0U}) {
    JobCourse one = course(elastic());
    one.resume(record_, Time{});
    agent::Hello hello;
    hello.term = term;
    for (const size_t host : {0U, 1U}) {
      one.hear_host(host, {{}, hello}, Time{});
      one.hear_host(host, {{}, agent::Alive{}}, Time{});
    }
    const auto started = take<StartRank>(one);
    EXPECT_EQ(started.size(), term == 0 ? 0U : 2U)
        << "an agent that was started anew knows nothing";
    EXPECT_EQ(one.running(), term == 0 ? 0 : 2);
  }
}

TEST_F(ResumedCourseTest, AnotherCoordinatorLearnsOfTheLastCheckpointAndWhenItWas) {
  say(0, agent::Started{.pid = 7});
  say(0, agent::Notice{{.step = 20, .text = "/run/step-20"}, seconds(9)});
  say_all(0);
  say(1, agent::Started{.pid = 8});
  one_.hear_host(1, {{}, agent::Alive{}}, Time{seconds(5)});
  std::vector<Event> told;
  for (const Announce& one : take<Announce>(one_))
    if (one.event.kind == EventKind::kCheckpoint) told.push_back(one.event);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].step, 20U);
  EXPECT_EQ(told[0].age, seconds(14)) << "nothing was decided before the other host had come";
}

TEST_F(ResumedCourseTest, AProcessThatIsNoMemberIsEnded) {
  agent::Subject stranger = members_[0];
  stranger.member = {std::byte{1}};
  stranger.epoch = agent::kNoEpochYet;
  one_.hear(0, {stranger, agent::Started{.pid = 9}}, Time{});
  const auto told = take<TellHost>(one_);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].message.about, stranger);
  EXPECT_EQ(std::get<agent::Signal>(told[0].message.body).number, SIGKILL);
}

TEST_F(ResumedCourseTest, WhatHasEndedOrVanishedMeanwhileIsGone) {
  for (const bool host_is_there : {true, false}) {
    JobCourse one = course(elastic());
    one.resume(record_, Time{});
    one.hear(0, {members_[0], agent::Started{.pid = 7}}, Time{});
    one.hear_host(0, {{}, agent::Alive{}}, Time{});
    host_is_there ? one.hear_host(1, {{}, agent::Alive{}}, Time{})
                  : one.lose_host(1, "silence", {});
    EXPECT_EQ(one.running(), 1);
    const auto told = take<TellAll>(one);
    ASSERT_EQ(told.size(), 2U);
    EXPECT_EQ(told[1].message.about.epoch, 1U);
    EXPECT_TRUE(std::holds_alternative<agent::Prepare>(told[1].message.body));
  }
}

TEST_F(ResumedCourseTest, AnEpochThatSomebodyWasToldOfIsPreparedAnew) {
  agent::Hello hello;
  hello.prepared = 3;
  one_.hear_host(0, {{}, hello}, Time{});
  for (const size_t host : {0U, 1U}) {
    say(host, agent::Started{.pid = 7});
    say(host, agent::ReadyForEpoch{.epoch = 3, .steps = 5});
    say_all(host);
  }
  auto told = take<TellAll>(one_);
  ASSERT_EQ(told.size(), 2U) << "that they are ready for another one counts for nothing";
  EXPECT_EQ(told[1].message.about.epoch, 4U);
  for (const size_t host : {0U, 1U}) say(host, agent::ReadyForEpoch{.epoch = 4, .steps = 5});
  const auto orders = one_.take_orders();
  const auto remember = std::ranges::find_if(
      orders, [](const JobOrder& order) { return std::holds_alternative<Remember>(order); });
  ASSERT_NE(remember, orders.end());
  EXPECT_EQ(std::get<Remember>(*remember).record.epoch, 4U);
  EXPECT_TRUE(std::holds_alternative<TellAll>(*std::next(remember)));
}

TEST_F(ResumedCourseTest, WhatRanksHavePutIsPassedOnWhenAllHostsCanHearIt) {
  one_.hear_host(0, {{}, agent::Record{.key = "k", .value = {}}}, Time{});
  say(0, agent::Started{.pid = 7});
  say_all(0);
  say(1, agent::Started{.pid = 8});
  say_all(1);
  const auto told = take<TellAll>(one_);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(std::get<agent::Record>(told[1].message.body).key, "k");
  EXPECT_EQ(told[1].from, 0U);
}

}  // namespace
}  // namespace corro::launch
