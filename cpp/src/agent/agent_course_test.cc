#include "agent/agent_course.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace corro::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const wire::Digest kJob = wire::digest_of("job");
const std::vector<pid_t> kRest = {200, 201};

MemberUuid uuid(int number) { return {static_cast<std::byte>(number + 1)}; }

Subject rank(int number, uint32_t epoch = 0) {
  return {.job = kJob, .epoch = epoch, .rank = number, .member = uuid(number), .incarnation = 1};
}

Subject table_server(int number) {
  return {.job = kJob,
          .rank = wire::kFirstServer + number,
          .member = uuid(100 + number),
          .incarnation = 1};
}

Message to_all(uint32_t epoch, MessageBody body) {
  return {{.job = kJob, .epoch = epoch}, std::move(body)};
}

/// Ranks 0 and 1 of a job run on this host, which has `members` in its first epoch.
class AgentCourseTest : public testing::Test {
 protected:
  AgentCourseTest() {
    EXPECT_TRUE(course_.accepts(rank(0)));
    for (const int number : {0, 1}) course_.on_start(rank(number), 100 + number);
    (void)told();
  }

  /// The orders in words.
  std::string told() {
    std::string text;
    for (const AgentOrder& order : course_.take_orders()) text += std::visit(Words(), order) + ";";
    return text;
  }
  std::string hear(const Message& message) {
    if (!course_.accepts(message.about)) return "dropped";
    course_.hear(message, now_);
    return told();
  }
  static Members members(std::vector<int> numbers) {
    Members list{.hosts = {"node1"}, .members = {}};
    for (const int number : numbers) {
      const auto place = static_cast<int32_t>(list.members.size());
      list.members.push_back({.rank = place, .uuid = uuid(number), .incarnation = 1, .host = 0});
    }
    return list;
  }

  struct Words {
    std::string operator()(const Say& say) const {
      if (const auto* trouble = std::get_if<Trouble>(&say.message.body)) return trouble->text;
      return "say " + std::to_string(say.message.body.index());
    }
    std::string operator()(const Report& report) const {
      return (report.ended ? "ended " : "seen ") + std::to_string(report.rank);
    }
    std::string operator()(const SendSignal& signal) const {
      return "signal " + std::to_string(signal.number);
    }
    std::string operator()(const KillRank& kill) const {
      return "kill " + std::to_string(kill.rank);
    }
    std::string operator()(const KillRest& kill) const {
      return kill.processes == kRest ? "kill rest" : "kill others";
    }
    std::string operator()(const PrepareWorker& prepare) const {
      return "prepare " + std::to_string(prepare.rank);
    }
    std::string operator()(const StartEpoch& start) const {
      return "epoch of " + std::to_string(start.size);
    }
    std::string operator()(const CommitWorker& commit) const {
      return "commit " + std::to_string(commit.rank) + " as " + std::to_string(commit.number);
    }
    std::string operator()(const Supply&) const { return "supply"; }
    std::string operator()(const EndRank& end) const { return "end " + std::to_string(end.number); }
    std::string operator()(const EndEpochs&) const { return "end epochs"; }
  };

  Time now_{};
  AgentCourse course_{"node1", /*far=*/true, now_};
};

TEST_F(AgentCourseTest, ANewEpochTellsItsMembersAndEndsWhoIsNone) {
  EXPECT_EQ(hear(to_all(0, members({0, 1}))), "");
  EXPECT_EQ(hear(to_all(1, Prepare{.why = "a rank is lost"})), "prepare 0;prepare 1;");
  const std::string begun = hear(to_all(1, members({1})));
  EXPECT_THAT(begun, HasSubstr("epoch of 1;process 100 on node1 is not a member of epoch 1, "
                               "and was ended;kill 0;commit 1 as 0;"));
  EXPECT_EQ(course_.about(1).rank, 0);
  EXPECT_EQ(course_.find_number(0), 1U) << "not the one that had this number before";
  EXPECT_TRUE(course_.is_fenced(0));
}

TEST_F(AgentCourseTest, WhoWasKilledByItsCommanderIsNoStranger) {
  (void)hear(to_all(0, members({0, 1})));
  Message fence = to_all(0, Signal{.number = SIGKILL});
  fence.about = rank(0);
  EXPECT_EQ(hear(fence), "kill 0;");
  EXPECT_THAT(hear(to_all(1, members({1}))), Not(HasSubstr("is not a member")));
}

TEST_F(AgentCourseTest, AMemberIsKilledWithAllThatIsBelowIt) {
  (void)hear(to_all(0, members({0, 1})));
  Message one = to_all(0, Signal{.number = SIGKILL});
  one.about = rank(1);
  EXPECT_EQ(hear(one), "kill 1;") << "a shell may be in its place";
  one.body = Signal{.number = SIGTERM};
  EXPECT_EQ(hear(one), "signal 15;");
}

TEST_F(AgentCourseTest, RanksThatNobodyHasLeaveSeeThatNoEpochComesBeforeTheyAreAskedToEnd) {
  EXPECT_TRUE(course_.any_runs());
  course_.end_ranks();
  EXPECT_EQ(told(), "end epochs;signal 15;");
  for (const size_t rank : {0U, 1U}) course_.on_end(rank, false);
  EXPECT_FALSE(course_.any_runs());
}

TEST_F(AgentCourseTest, ATableServerIsNoRank) {
  const Subject server = table_server(1);
  EXPECT_TRUE(course_.admit(server).ok());
  course_.on_start(server, 102);
  (void)told();
  EXPECT_TRUE(course_.serves(2));
  EXPECT_THAT(hear(to_all(0, members({0, 1}))), Not(HasSubstr("kill")));
  EXPECT_EQ(hear(to_all(0, Look{})).substr(0, 21), "seen 0;seen 1;seen 2;");
  EXPECT_EQ(hear(to_all(0, Signal{.number = SIGTERM})), "signal 15;signal 15;")
      << "each rank, and not the server";
  EXPECT_EQ(hear(to_all(0, Signal{.number = SIGKILL})), "signal 9;") << "all";
  EXPECT_TRUE(course_.admit(server).ok()) << "no list of members names it";
  Message one = to_all(0, Signal{.number = SIGTERM});
  one.about = server;
  EXPECT_EQ(hear(one), "signal 15;");
}

TEST_F(AgentCourseTest, NobodyWaitsForATableServerThatFailedBeforeItWasThere) {
  course_.on_start(table_server(0), 102);
  course_.on_end(2, /*well=*/false);
  course_.on_end(0, /*well=*/false);
  (void)told();
  const auto none = [] { return false; };
  course_.tell_departures([](int32_t) { return false; }, none);
  EXPECT_THAT(told(), HasSubstr("end " + std::to_string(wire::kFirstServer) + ";"))
      << "unlike a rank that has failed, which ends the job";
  course_.on_start(table_server(1), 103);
  course_.on_end(3, /*well=*/false);
  (void)told();
  course_.tell_departures([](int32_t) { return true; }, none);
  EXPECT_EQ(told(), "") << "it had said where it listens";
}

TEST_F(AgentCourseTest, WhatIsOfAnOlderEpochOrAnotherJobIsDropped) {
  (void)hear(to_all(1, members({0, 1})));
  EXPECT_EQ(hear(to_all(0, Signal{.number = SIGKILL})), "dropped");
  Message other = to_all(1, Signal{.number = SIGKILL});
  other.about.job = wire::digest_of("other");
  EXPECT_EQ(hear(other), "dropped");
}

TEST_F(AgentCourseTest, AProcessThatIsNoMemberIsNotStarted) {
  (void)hear(to_all(1, members({0, 1})));
  EXPECT_FALSE(course_.admit(rank(2, 1)).ok());
  Subject joiner = rank(2);
  joiner.epoch = kNoEpochYet;
  EXPECT_TRUE(course_.admit(joiner).ok());
}

TEST_F(AgentCourseTest, AnotherCoordinatorIsToldAllOnceMoreInALaterTermAlone) {
  (void)hear(to_all(0, members({0, 1})));
  course_.on_join(0);
  course_.on_put({.key = "k", .value = {}});
  course_.on_ready(0, {.epoch = 1, .steps = 7});
  course_.on_leave(0);
  course_.on_leave();
  course_.on_end(1, /*well=*/true);
  (void)hear(to_all(3, Prepare{.why = "a rank is lost"}));
  (void)told();
  EXPECT_EQ(course_.prepared(), 3U);
  ASSERT_TRUE(course_.follow(2, now_ + seconds(9)));
  std::vector<size_t> said;
  const auto orders = course_.take_orders();
  for (const AgentOrder& order : orders)
    if (const auto* say = std::get_if<Say>(&order)) said.push_back(say->message.body.index());
  const std::vector<MessageBody> all = {Started{}, Joined{}, ReadyForEpoch{}, Leaving{},
                                        Started{}, Record{}, Leaving{},       Alive{}};
  ASSERT_EQ(said.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(said[i], all[i].index()) << i;
  EXPECT_TRUE(std::ranges::any_of(orders, [](const AgentOrder& order) {
    const auto* report = std::get_if<Report>(&order);
    return report != nullptr && report->rank == 1 && report->ended;
  }));
  EXPECT_EQ(course_.silent_at(), now_ + seconds(9) + kSilence);
  EXPECT_FALSE(course_.follow(1, now_));
  EXPECT_EQ(told(), "");
  EXPECT_EQ(course_.term(), 2U);
}

TEST_F(AgentCourseTest, AnotherCoordinatorIsToldOfTheLastCheckpointAndPlanAndHowOldTheyAre) {
  (void)hear(to_all(0, members({0, 1})));
  (void)told();
  const auto said = [this] {
    std::vector<Notice> all;
    for (const AgentOrder& order : course_.take_orders()) {
      const auto* say = std::get_if<Say>(&order);
      if (say == nullptr) continue;
      const auto* one = std::get_if<Notice>(&say->message.body);
      if (one != nullptr) all.push_back(*one);
    }
    return all;
  };
  course_.on_notice(1, {.step = 10, .text = "/run/step-10"}, now_);
  course_.on_notice(1, {.kind = wire::NoticeKind::kPlan, .text = "two stages"}, now_);
  course_.on_notice(1, {.step = 20, .text = "/run/step-20"}, now_ + seconds(1));
  const auto first = said();
  ASSERT_EQ(first.size(), 3U);
  EXPECT_EQ(first[2].said.step, 20U);
  EXPECT_EQ(first[2].said.text, "/run/step-20");
  EXPECT_EQ(first[2].age, Duration::zero());
  ASSERT_TRUE(course_.follow(2, now_ + seconds(9)));
  const auto again = said();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].said.step, 20U);
  EXPECT_EQ(again[0].age, seconds(8));
  EXPECT_EQ(again[1].said.kind, wire::NoticeKind::kPlan);
  EXPECT_EQ(again[1].said.text, "two stages");
  EXPECT_EQ(again[1].age, seconds(9));
}

TEST_F(AgentCourseTest, WhatAnEpochHasAnsweredIsNotSaidAgain) {
  (void)hear(to_all(0, members({0, 1})));
  course_.on_put({.key = "k", .value = {}});
  course_.on_ready(0, {.epoch = 1, .steps = 7});
  (void)hear(to_all(1, members({0, 1})));
  EXPECT_EQ(hear(to_all(1, members({0, 1}))), "") << "the same list is nothing new";
  ASSERT_TRUE(course_.follow(2, now_));
  for (const AgentOrder& order : course_.take_orders()) {
    const auto& body = std::get<Say>(order).message.body;
    EXPECT_FALSE(std::holds_alternative<ReadyForEpoch>(body));
    EXPECT_FALSE(std::holds_alternative<Record>(body));
  }
}

TEST_F(AgentCourseTest, WhoHasEndedWellAndHasNeverJoinedIsWaitedForByNobody) {
  (void)hear(to_all(0, members({0, 1})));
  course_.on_end(0, /*well=*/true);
  course_.on_end(1, /*well=*/false);
  EXPECT_EQ(told(), "ended 0;ended 1;");
  const auto never = [](int32_t) { return false; };
  course_.tell_departures(never, [] { return true; });
  EXPECT_EQ(told(), "") << "what is left may join for it";
  course_.tell_departures(never, [] { return false; });
  EXPECT_THAT(told(), testing::StartsWith("end 0;say "));
  course_.tell_departures(never, [] { return false; });
  EXPECT_EQ(told(), "") << "once";
}

TEST_F(AgentCourseTest, WhatIsLeftHasItsGraceAndIsKilledThen) {
  course_.on_end(0, true);
  (void)told();
  EXPECT_EQ(hear(to_all(0, Fence{.grace = milliseconds(500)})), "");
  course_.see_rest(kRest, now_ + milliseconds(499));
  EXPECT_EQ(told(), "");
  course_.see_rest(kRest, now_ + milliseconds(500));
  EXPECT_EQ(told(), "kill rest;");
  EXPECT_TRUE(course_.ending());
  course_.see_rest({}, now_ + milliseconds(510));
  EXPECT_EQ(course_.state(), AgentCourse::State::kDraining);
  course_.drain(/*open=*/true, /*held=*/false, now_ + milliseconds(520));
  EXPECT_EQ(told(), "") << "output is on its way";
  course_.drain(true, /*held=*/true, now_ + seconds(10));
  EXPECT_EQ(told(), "") << "and nobody reads it";
  course_.resume(now_ + seconds(10));
  course_.drain(true, false, now_ + seconds(10) + milliseconds(300));
  EXPECT_THAT(told(), testing::StartsWith("ended 0;say "));
  EXPECT_EQ(course_.state(), AgentCourse::State::kFenced);
}

TEST_F(AgentCourseTest, WhatCannotBeKilledIsSaid) {
  (void)hear(to_all(0, Fence{}));
  course_.see_rest(kRest, now_ + seconds(3));
  course_.drain(false, false, now_ + seconds(3));
  const auto orders = course_.take_orders();
  ASSERT_EQ(orders.size(), 1U);
  EXPECT_TRUE(std::get<Fenced>(std::get<Say>(orders[0]).message.body).left);
}

TEST_F(AgentCourseTest, TheCommanderIsGoneAfterTenSecondsUnlessCtrlZHasStoppedIt) {
  EXPECT_EQ(course_.silent_at(), now_ + kSilence);
  course_.hear_life(now_ + seconds(5));
  EXPECT_EQ(course_.silent_at(), now_ + seconds(5) + kSilence);
  (void)hear(to_all(0, Signal{.number = SIGTSTP}));
  EXPECT_EQ(course_.silent_at(), Time::never());
}

}  // namespace
}  // namespace corro::agent
