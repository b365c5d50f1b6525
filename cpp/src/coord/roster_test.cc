#include "coord/roster.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

namespace corro::coord {
namespace {

using std::chrono::seconds;

MemberUuid uuid(int number) {
  MemberUuid made{};
  made[0] = static_cast<std::byte>((number + 1) % 256);
  made[1] = static_cast<std::byte>((number + 1) / 256);
  return made;
}

int number_of(const MemberUuid& member) {
  return std::to_integer<int>(member[0]) + 256 * std::to_integer<int>(member[1]) - 1;
}

std::vector<MemberUuid> uuids(int count) {
  std::vector<MemberUuid> all;
  for (int i = 0; i < count; ++i) all.push_back(uuid(i));
  return all;
}

/// A roster and its clock; says what was decided as words.
class Told {
 public:
  Told(int members, Options options, size_t slots = 0)
      : options_(options), state_(begin(uuids(members), slots)) {}

  std::string hear(const Event& event) {
    Decision decision = decide(now, state_, event, options_);
    state_ = decision.state;
    std::string text;
    for (const Action& action : decision.actions) text += std::visit(Words(), action) + ";";
    return text;
  }
  std::string killed(int member) { return hear(Ended{.member = uuid(member), .how = "killed"}); }
  std::string frozen(int member) { return hear(Frozen{.member = uuid(member), .how = "frozen"}); }
  std::string done(int member) {
    return hear(Ended{.member = uuid(member), .well = true, .how = "done"});
  }
  std::string ready(int member, uint32_t epoch, uint64_t steps = 0) {
    return hear(Ready{.member = uuid(member), .epoch = epoch, .steps = steps});
  }
  std::string leaving(int member) {
    return hear(Leaving{.members = {uuid(member)}, .how = "asked to end"});
  }
  std::string started(size_t slot, int joiner) {
    return hear(Started{.slot = slot, .joiner = uuid(joiner)});
  }
  std::string offered(size_t slot, bool usable) {
    return hear(Offered{.slot = slot, .usable = usable});
  }
  std::string lost(int by, int member) {
    return hear(
        Ready{.member = uuid(by),
              .epoch = state_.epoch,
              .lost = uuid(member),
              .how = "rank " + std::to_string(by) + " has lost rank " + std::to_string(member)});
  }
  std::string wait(Duration span) {
    now = now + span;
    return hear(Tick{});
  }
  [[nodiscard]] const State& state() const { return state_; }
  [[nodiscard]] Time wake() const { return coord::wake(state_, options_); }

  Time now{};

 private:
  struct Words {
    std::string operator()(const Prepare& prepare) const {
      return (prepare.at_once ? "prepare " : "plan ") + std::to_string(prepare.epoch);
    }
    std::string operator()(const Commit& commit) const {
      std::string text = commit.last ? "last " : "commit ";
      text += std::to_string(commit.epoch) + ":";
      for (const MemberUuid& member : commit.members) text += std::to_string(number_of(member));
      return text;
    }
    std::string operator()(const Fence& fence) const {
      return "fence " + std::to_string(number_of(fence.member));
    }
    std::string operator()(const Start& start) const {
      return "start " + std::to_string(start.slot);
    }
    std::string operator()(const Stop& /*stop*/) const { return "stop"; }
    std::string operator()(const Tell& tell) const { return "'" + tell.why + "'"; }
  };

  Options options_;
  State state_;
};

TEST(Roster, GoesOnUnderAnotherCoordinatorAndChangesWhatHadBegunToChange) {
  const auto resumed = [](uint32_t prepared) {
    State state = resume(4, {{.uuid = uuid(0), .slot = 1}, {.uuid = uuid(1), .slot = 0}},
                         std::vector<Slot>(3));
    Decision decision =
        decide(Time{}, std::move(state), Resumed{.prepared = prepared}, {.least = 1, .most = 3});
    return std::pair(decision.state, decision.actions);
  };
  const auto [settled, nothing] = resumed(4);
  EXPECT_FALSE(settled.changing());
  ASSERT_EQ(nothing.size(), 1U) << "but that the free slot is used";
  EXPECT_EQ(std::get<Start>(nothing[0]).slot, 2U);
  const auto [changing, actions] = resumed(6);
  EXPECT_EQ(std::get<Prepare>(actions.at(0)).epoch, 7U) << "nobody was told of that one";
  EXPECT_TRUE(changing.changing());
}

TEST(Roster, GoesOnWithoutAMemberThatIsKilled) {
  Told roster(3, {.least = 2});
  EXPECT_EQ(roster.killed(1), "prepare 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(2, 1), "commit 1:02;");
  EXPECT_EQ(roster.state().epoch, 1U);
  EXPECT_FALSE(roster.state().changing());
}

TEST(Roster, StopsWithFewerThanTheLeast) {
  Told roster(3, {.least = 2});
  (void)roster.killed(1);
  EXPECT_EQ(roster.killed(2), "stop;");
  EXPECT_EQ(roster.killed(0), "") << "it has stopped";
  EXPECT_EQ(Told(1, {.least = 1}).killed(0), "stop;") << "nobody is left";
}

TEST(Roster, SaysWhyItStops) {
  const Decision decision =
      decide(Time{}, begin(uuids(2), 2), Ended{.member = uuid(0), .how = "rank 0 was killed"},
             {.least = 2});
  ASSERT_EQ(decision.actions.size(), 1U);
  EXPECT_EQ(std::get<Stop>(decision.actions[0]).why,
            "rank 0 was killed: 1 rank is left, at least 2 are needed");
}

TEST(Roster, StopsWhenItWasResetAsOftenAsItMayBe) {
  Told roster(4, {.least = 1, .resets = 1});
  (void)roster.killed(3);
  EXPECT_EQ(roster.killed(2), "prepare 2;") << "the first reset is not over";
  (void)roster.ready(0, 2);
  EXPECT_EQ(roster.ready(1, 2), "commit 2:01;");
  const Decision decision =
      decide(Time{}, roster.state(), Ended{.member = uuid(1), .how = "rank 1 was killed"},
             {.least = 1, .resets = 1});
  ASSERT_EQ(decision.actions.size(), 1U);
  EXPECT_EQ(std::get<Stop>(decision.actions[0]).why,
            "rank 1 was killed: that would be more than 1 reset, the limit");
  EXPECT_EQ(Told(2, {.least = 1, .resets = 0}).killed(1), "stop;");
}

TEST(Roster, BeginsAgainIfAMemberEndsMeanwhile) {
  Told roster(4, {.least = 1});
  EXPECT_EQ(roster.killed(0), "prepare 1;");
  EXPECT_EQ(roster.ready(1, 1), "");
  EXPECT_EQ(roster.killed(2), "prepare 2;");
  EXPECT_EQ(roster.ready(3, 1), "") << "of an epoch that never began";
  EXPECT_EQ(roster.ready(3, 2), "");
  EXPECT_EQ(roster.ready(1, 2), "commit 2:13;");
}

TEST(Roster, AMemberThatHasDoneItsWorkChangesNothing) {
  Told roster(3, {.least = 2});
  EXPECT_EQ(roster.done(0), "");
  EXPECT_EQ(roster.killed(1), "prepare 1;") << "0 counts";
  EXPECT_EQ(roster.ready(2, 1), "commit 1:2;");
  EXPECT_EQ(roster.done(2), "");
}

TEST(Roster, WaitsForNobodyWhoHasDoneItsWork) {
  Told roster(3, {.least = 1});
  EXPECT_EQ(roster.killed(1), "prepare 1;");
  EXPECT_EQ(roster.ready(2, 1), "");
  EXPECT_EQ(roster.done(0), "prepare 2;");
  EXPECT_EQ(roster.done(2), "");
  EXPECT_FALSE(roster.state().changing());
}

TEST(Roster, TheLastOneKilledWhileItChangesIsAFailure) {
  Told roster(3, {.least = 1});
  EXPECT_EQ(roster.killed(1), "prepare 1;");
  EXPECT_EQ(roster.done(0), "prepare 2;");
  EXPECT_EQ(roster.killed(2), "stop;");
}

TEST(Roster, FencesWhoIsNotReadyInTime) {
  Told roster(4, {.least = 2, .patience = seconds(60)});
  (void)roster.killed(3);
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(2, 1), "");
  roster.now = Time{} + seconds(59);
  EXPECT_EQ(roster.hear(Tick{}), "");
  roster.now = Time{} + seconds(60);
  EXPECT_EQ(roster.hear(Tick{}), "fence 1;prepare 2;");
  EXPECT_EQ(roster.killed(1), "") << "it has counted already";
  EXPECT_EQ(roster.ready(0, 2), "");
  EXPECT_EQ(roster.ready(2, 2), "commit 2:02;");
  EXPECT_EQ(roster.state().until, Time::never());
}

TEST(Roster, FencesAFrozenMemberUnlessTooFewWouldBeLeft) {
  Told roster(4, {.least = 2});
  EXPECT_EQ(roster.frozen(1), "fence 1;prepare 1;");
  EXPECT_EQ(roster.frozen(1), "") << "it has counted already";
  EXPECT_EQ(roster.killed(1), "");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.frozen(2), "fence 2;prepare 2;") << "while it changes, too";
  EXPECT_EQ(roster.frozen(3), "") << "it may come back";
  EXPECT_EQ(roster.ready(0, 2), "");
  EXPECT_EQ(roster.ready(3, 2), "commit 2:03;");
}

TEST(Roster, WhoIsLostAndHasEndedIsNotJudged) {
  Told roster(3, {.least = 1, .testimony = seconds(2)});
  EXPECT_EQ(roster.lost(2, 0), "");
  EXPECT_EQ(roster.wake(), Time{} + seconds(2));
  EXPECT_EQ(roster.killed(0), "prepare 1;");
  EXPECT_EQ(roster.wait(seconds(2)), "");
}

TEST(Roster, OfTwoThatHaveLostEachOtherOneIsFenced) {
  Told both(3, {.least = 1, .testimony = seconds(2)});
  EXPECT_EQ(both.lost(2, 0), "");
  EXPECT_EQ(both.lost(0, 2), "");
  EXPECT_EQ(both.wait(seconds(2)), "fence 2;prepare 1;") << "the later one";
  Told one(3, {.least = 1, .testimony = seconds(2)});
  EXPECT_EQ(one.lost(2, 0), "");
  EXPECT_EQ(one.lost(1, 0), "");
  EXPECT_EQ(one.lost(0, 2), "");
  EXPECT_EQ(one.wait(seconds(2)), "fence 0;prepare 1;") << "whom more have lost";
}

TEST(Roster, OfTwoHostsThatHaveLostEachOtherTheSmallerOneIsFenced) {
  Told roster(5, {.least = 1, .testimony = seconds(2)});
  for (const size_t slot : {0U, 1U}) EXPECT_EQ(roster.hear(Offered{.slot = slot, .host = 7}), "");
  EXPECT_EQ(roster.lost(1, 3), "");
  EXPECT_EQ(roster.lost(3, 1), "");
  EXPECT_EQ(roster.wait(seconds(2)), "fence 0;fence 1;prepare 1;");
}

TEST(Roster, OfTwoHostsThatHaveLostEachOtherTheOneGoesThatThePolicyNames) {
  Options options{.least = 1, .testimony = seconds(2)};
  options.policy.fence = [](const Cut& cut) -> Verdict {
    EXPECT_EQ(cut.how, "rank 1 has lost rank 3");
    EXPECT_EQ(cut.sides.at(0).members, (std::vector<size_t>{0, 1}));
    EXPECT_EQ(cut.sides.at(1).members, (std::vector<size_t>{2, 3, 4}));
    EXPECT_EQ(cut.sides.at(1).accusers, 1U);
    return {1, "the far one"};
  };
  Told roster(5, options);
  for (const size_t slot : {0U, 1U}) EXPECT_EQ(roster.hear(Offered{.slot = slot, .host = 7}), "");
  EXPECT_EQ(roster.lost(1, 3), "");
  EXPECT_EQ(roster.wait(seconds(2)), "fence 2;fence 3;fence 4;prepare 1;'the far one';");
}

TEST(Roster, NobodyIsFencedWhereTooFewWouldBeLeft) {
  Told roster(2, {.least = 2, .testimony = seconds(2)});
  EXPECT_EQ(roster.lost(0, 1), "");
  EXPECT_EQ(roster.wait(seconds(2)), "prepare 1;") << "they may meet again";
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(1, 1), "commit 1:01;");
}

TEST(Roster, AMemberThatHasEndedWellIsMissedByThoseThatNeedIt) {
  Told roster(3, {.least = 2, .testimony = seconds(2)});
  EXPECT_EQ(roster.done(1), "") << "others may be about to end, too";
  EXPECT_EQ(roster.lost(0, 1), "");
  EXPECT_EQ(roster.lost(2, 1), "");
  EXPECT_EQ(roster.wait(seconds(2)), "prepare 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(2, 1), "commit 1:02;");
}

TEST(Roster, WhoIsFencedMayBeReplacedBeforeTheOthersGoOn) {
  Options options{.least = 1, .most = 3, .testimony = seconds(2)};
  options.policy.replace = [](const Loss& loss) -> Wait { return {seconds(30), loss.how}; };
  Told roster(3, options);
  EXPECT_EQ(roster.lost(2, 0), "");
  EXPECT_EQ(roster.wait(seconds(2)), "fence 0;prepare 1;'rank 2 has lost rank 0, and both live';");
  EXPECT_EQ(roster.ready(1, 1), "");
  EXPECT_EQ(roster.ready(2, 1), "") << "a replacement is waited for";
}

/// Of a member that has done one step, and one that has joined, and has so many `steps`.
std::string after_the_old_member_was_lost(uint64_t steps) {
  Told roster(1, {.least = 1, .most = 2}, 2);
  EXPECT_EQ(roster.started(1, 5), "start 1;");
  EXPECT_EQ(roster.ready(5, 0), "plan 1;");
  EXPECT_EQ(roster.ready(5, 1), "");
  EXPECT_EQ(roster.ready(0, 1, 1), "commit 1:05;");
  EXPECT_THAT(roster.killed(0), ::testing::StartsWith("prepare 2;"));
  return roster.ready(5, 2, steps);
}

TEST(Roster, AJoinerThatNeverGotTheStateDoesNotGoOnAloneAfterTheFirstStep) {
  EXPECT_THAT(after_the_old_member_was_lost(0), ::testing::HasSubstr("stop;"));
  EXPECT_THAT(after_the_old_member_was_lost(1), ::testing::HasSubstr("commit 2:5;"));
}

TEST(Roster, DropsWhatIsOfNoMember) {
  Told roster(2, {.least = 1});
  EXPECT_EQ(roster.killed(7), "");
  EXPECT_EQ(roster.ready(0, 0), "") << "nothing is prepared";
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.killed(1), "prepare 1;");
  EXPECT_EQ(roster.ready(1, 1), "") << "it has ended";
}

// -- joiners --------------------------------------------------------------------------------------

TEST(Roster, TakesInAJoinerAtTheEndOfAStep) {
  Told roster(2, {.least = 1, .most = 3}, 3);
  EXPECT_EQ(roster.wait(seconds(0)), "start 2;");
  EXPECT_EQ(roster.wait(seconds(0)), "") << "it was";
  EXPECT_EQ(roster.started(2, 7), "");
  EXPECT_EQ(roster.ready(7, 0), "plan 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(7, 1), "");
  EXPECT_EQ(roster.ready(1, 1), "commit 1:017;");
  EXPECT_EQ(roster.wait(seconds(0)), "") << "there are three";
  EXPECT_EQ(roster.wake(), Time::never());
}

TEST(Roster, StartsAnotherOneInThePlaceOfOneThatWasKilled) {
  Told roster(3, {.least = 1, .most = 3});
  EXPECT_EQ(roster.killed(1), "prepare 1;start 1;");
  EXPECT_EQ(roster.started(1, 7), "");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(2, 1), "commit 1:02;") << "nobody waits for it";
  EXPECT_EQ(roster.ready(7, 1), "plan 2;");
  for (const int member : {0, 2}) EXPECT_EQ(roster.ready(member, 2), "");
  EXPECT_EQ(roster.ready(7, 2), "commit 2:027;") << "members keep their order";
}

TEST(Roster, JoinersThatAreStartedTogetherAreTakenInTogether) {
  Told roster(1, {.least = 1, .most = 4, .policy = standard_policy({.gather = seconds(1)})}, 4);
  EXPECT_EQ(roster.wait(seconds(0)), "start 1;start 2;start 3;");
  for (const size_t slot : {1U, 2U, 3U}) (void)roster.started(slot, static_cast<int>(slot));
  EXPECT_EQ(roster.ready(1, 0), "'3 ranks may join together within 1 s';");
  EXPECT_EQ(roster.ready(3, 0), "");
  EXPECT_EQ(roster.wake(), roster.now + seconds(1));
  EXPECT_EQ(roster.wait(seconds(1)), "plan 1;") << "not longer than that";
  EXPECT_EQ(roster.wake(), roster.now + seconds(300));
  EXPECT_THAT(roster.ready(2, 1), testing::StartsWith("'")) << "it comes with the next epoch";
  for (const int member : {1, 3}) EXPECT_EQ(roster.ready(member, 1), "");
  EXPECT_EQ(roster.ready(0, 1), "commit 1:013;plan 2;");
}

TEST(Roster, AJoinerThatEndsIsNotWaitedFor) {
  Told roster(1, {.least = 1, .most = 2}, 2);
  (void)roster.wait(seconds(0));
  (void)roster.started(1, 1);
  EXPECT_EQ(roster.ready(1, 0), "plan 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.killed(1), "commit 1:0;start 1;");
}

TEST(Roster, AJoinerThatDoesNotAnswerIsFenced) {
  Told roster(1, {.least = 1, .most = 2, .step = seconds(60), .answer = seconds(10)}, 2);
  (void)roster.wait(seconds(0));
  (void)roster.started(1, 1);
  (void)roster.ready(1, 0);
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.wake(), roster.now + seconds(10));
  EXPECT_EQ(roster.wait(seconds(10)), "fence 1;commit 1:0;") << "its process has not ended";
  EXPECT_EQ(roster.killed(1), "start 1;");
}

TEST(Roster, AStepThatDoesNotEndIsBrokenOff) {
  Told roster(2, {.least = 1, .most = 3, .step = seconds(60)}, 3);
  (void)roster.wait(seconds(0));
  (void)roster.started(2, 2);
  EXPECT_EQ(roster.ready(2, 0), "plan 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.wait(seconds(60)), "prepare 2;");
}

TEST(Roster, APlaceThatFailsWaitsLongerEachTime) {
  Told roster(1,
              {.least = 1,
               .most = 2,
               .policy = standard_policy({.back_off = seconds(1), .most_back_off = seconds(5)})},
              2);
  EXPECT_EQ(roster.wait(seconds(0)), "start 1;");
  (void)roster.started(1, 10);
  EXPECT_EQ(roster.killed(10), "start 1;") << "once can be chance";
  int failures = 2;
  for (const int pause : {1, 2, 4, 5, 5}) {
    (void)roster.started(1, 9 + failures);
    const std::string why = fmt::format(
        "'{} failures in a row: nothing is started in this slot for {} s';", failures, pause);
    EXPECT_EQ(roster.killed(9 + failures++), why);
    EXPECT_EQ(roster.wake(), roster.now + seconds(pause));
    EXPECT_EQ(roster.wait(seconds(pause)), "start 1;");
  }
}

TEST(Roster, AMemberThatHasLastedIsReplacedAtOnce) {
  Told roster(2, {.least = 1, .most = 2, .proof = seconds(60)});
  for (int i = 0; i < 4; ++i) {
    roster.now = roster.now + seconds(61);
    const int process = i == 0 ? 1 : 9 + i;
    EXPECT_THAT(roster.killed(process), testing::EndsWith("start 1;"));
    (void)roster.started(1, 10 + i);
    const auto epoch = static_cast<uint32_t>(2 * i + 1);
    (void)roster.ready(10 + i, epoch);
    (void)roster.ready(0, epoch);
    for (const int member : {0, 10 + i}) (void)roster.ready(member, epoch + 1);
    EXPECT_EQ(roster.state().epoch, epoch + 1);
  }
}

TEST(Roster, WaitsForJoinersWhereTooFewAreLeft) {
  Told roster(3, {.least = 3, .most = 3});
  EXPECT_EQ(roster.killed(2), "prepare 1;start 2;");
  for (const int member : {0, 1}) EXPECT_EQ(roster.ready(member, 1), "") << "it is paused";
  (void)roster.started(2, 7);
  EXPECT_EQ(roster.ready(7, 1), "prepare 2;");
  for (const int member : {0, 1}) EXPECT_EQ(roster.ready(member, 2), "");
  EXPECT_EQ(roster.ready(7, 2), "commit 2:017;");
}

TEST(Roster, WaitsAWhileForAReplacement) {
  Told roster(3, {.least = 1, .most = 3, .policy = standard_policy({.replacement = seconds(10)})});
  EXPECT_EQ(roster.killed(2), "prepare 1;start 2;'others may come in their place for 10 s';");
  for (const int member : {0, 1}) EXPECT_EQ(roster.ready(member, 1), "");
  (void)roster.started(2, 7);
  EXPECT_EQ(roster.wait(seconds(9)), "");
  EXPECT_EQ(roster.wake(), Time{} + seconds(10));
  EXPECT_EQ(roster.ready(7, 0), "prepare 2;");
  for (const int member : {0, 1}) EXPECT_EQ(roster.ready(member, 2), "");
  EXPECT_EQ(roster.ready(7, 2), "commit 2:017;");
}

TEST(Roster, GoesOnWithFewerWhereNoReplacementHasCome) {
  Told roster(3, {.least = 1, .most = 3, .policy = standard_policy({.replacement = seconds(10)})});
  (void)roster.killed(2);
  for (const int member : {0, 1}) EXPECT_EQ(roster.ready(member, 1), "");
  EXPECT_EQ(roster.wait(seconds(10)), "commit 1:01;");
  EXPECT_EQ(roster.wake(), Time::never());
}

TEST(Roster, WaitsForNoReplacementWhereNobodyCanCome) {
  Told roster(3, {.least = 1, .policy = standard_policy({.replacement = seconds(10)})});
  (void)roster.killed(2);
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(1, 1), "commit 1:01;");
}

TEST(Roster, AsksThePolicyHowLongToWaitAndTellsWhy) {
  Policy policy = standard_policy({});
  policy.replace = [](const Loss& loss) -> Wait {
    return {seconds(loss.left), loss.how + ": a spare one comes"};
  };
  policy.gather = [](const Growth& growth) -> Wait { return {seconds(10 * growth.coming), "all"}; };
  policy.quarantine = [](const Failure& failure) -> Wait {
    return {seconds(failure.failures), "slot of host " + std::to_string(failure.host)};
  };
  Told roster(3, {.least = 1, .most = 4, .policy = policy}, 4);
  EXPECT_EQ(roster.hear(Tick{}), "start 3;");
  EXPECT_EQ(roster.killed(2), "prepare 1;'slot of host 0';'killed: a spare one comes';");
  EXPECT_EQ(roster.wait(seconds(1)), "start 2;") << "after the quarantine";
  for (const int member : {0, 1}) EXPECT_EQ(roster.ready(member, 1), "");
  EXPECT_EQ(roster.wait(seconds(1)), "commit 1:01;");
  (void)roster.started(2, 6);
  (void)roster.started(3, 7);
  EXPECT_EQ(roster.ready(7, 0), "'all';");
  EXPECT_EQ(roster.wait(seconds(19)), "");
  EXPECT_EQ(roster.wait(seconds(1)), "plan 2;");
}

TEST(Roster, DoesNotWaitForJoinersForEver) {
  Told roster(2, {.least = 2, .most = 2, .patience = seconds(600)});
  EXPECT_EQ(roster.killed(1), "prepare 1;start 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.wait(seconds(600)), "stop;");
}

TEST(Roster, WaitsForHostsWithoutAnEndWhereItMay) {
  Told roster(2, {.least = 2, .most = 2, .patience = seconds(600), .waits_for_hosts = true});
  EXPECT_EQ(roster.hear(Ended{.member = uuid(1), .how = "host b was lost", .host_lost = true}),
            "prepare 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(roster.wait(seconds(600)), "");
  EXPECT_EQ(roster.offered(1, true), "start 1;");
  EXPECT_EQ(roster.started(1, 2), "");
  EXPECT_EQ(roster.ready(2, 0), "prepare 2;");
  EXPECT_EQ(roster.ready(0, 2), "");
  EXPECT_EQ(roster.ready(2, 2), "commit 2:02;");
}

TEST(Roster, WithEnoughHostsWhatDoesNotComeAreProcesses) {
  Told roster(2, {.least = 2, .most = 2, .patience = seconds(600), .waits_for_hosts = true});
  EXPECT_EQ(roster.killed(1), "prepare 1;start 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.wait(seconds(600)), "stop;");
}

TEST(Roster, NobodyJoinsOnceTheWorkIsDone) {
  Told roster(2, {.least = 1, .most = 3}, 3);
  (void)roster.wait(seconds(0));
  (void)roster.started(2, 2);
  EXPECT_EQ(roster.done(0), "fence 2;");
  EXPECT_EQ(roster.ready(2, 0), "");
  EXPECT_EQ(roster.killed(2), "");
  EXPECT_EQ(roster.done(1), "");
  EXPECT_EQ(roster.wake(), Time::never());
}

TEST(Roster, AMemberLeavesAPlaceThatIsTakenAway) {
  Told roster(3, {.least = 1, .most = 3});
  EXPECT_EQ(roster.offered(1, false), "plan 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(1, 1), "");
  EXPECT_EQ(roster.ready(2, 1), "fence 1;commit 1:02;");
  EXPECT_EQ(roster.killed(1), "");
  EXPECT_EQ(roster.offered(1, true), "start 1;");
  EXPECT_EQ(roster.offered(7, true), "") << "there are three";
}

TEST(Roster, AllPlacesTakenAwayHarmNobody) {
  Told roster(2, {.least = 1, .most = 2});
  EXPECT_EQ(roster.offered(0, false), "plan 1;");
  EXPECT_EQ(roster.offered(1, false), "");
  for (const int member : {0, 1}) (void)roster.ready(member, 1);
  EXPECT_EQ(roster.state().members.size(), 2U);
}

TEST(Roster, OneThatIsAskedToEndLeavesAtTheEndOfAStep) {
  Told roster(3, {.least = 2});
  EXPECT_EQ(roster.leaving(1), "plan 1;");
  EXPECT_EQ(roster.leaving(1), "") << "again";
  for (const int member : {0, 1}) EXPECT_EQ(roster.ready(member, 1), "");
  EXPECT_EQ(roster.ready(2, 1), "fence 1;commit 1:02;");
}

TEST(Roster, WhereAllAreAskedToEndOneEpochComesForAll) {
  Told roster(3, {.least = 1, .resets = 1});
  EXPECT_EQ(roster.leaving(1), "plan 1;");
  EXPECT_EQ(roster.leaving(0), "");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(1, 1), "");
  EXPECT_EQ(roster.leaving(2), "");
  EXPECT_EQ(roster.ready(2, 1), "last 1:012;");
  EXPECT_EQ(roster.done(0), "");
  EXPECT_EQ(roster.killed(1), "prepare 2;") << "whatever the limit is";
  EXPECT_EQ(roster.ready(2, 2), "last 2:2;");
  EXPECT_EQ(roster.done(2), "");
}

TEST(Roster, AJobThatNeedsTheOneThatIsAskedToEndEndsWithIt) {
  Told roster(2, {.least = 2});
  EXPECT_EQ(roster.leaving(1), "plan 1;");
  EXPECT_EQ(roster.ready(1, 1), "");
  EXPECT_EQ(roster.ready(0, 1), "last 1:01;");
  EXPECT_EQ(roster.leaving(0), "") << "it is about to";
}

TEST(Roster, OneThatIsAskedToEndIsReplacedAndNobodyJoinsALastEpoch) {
  Told roster(2, {.least = 2, .most = 2});
  EXPECT_EQ(roster.leaving(0), "plan 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(1, 1), "fence 0;") << "it waits for another one";
  EXPECT_EQ(roster.killed(0), "start 0;");
  EXPECT_EQ(roster.started(0, 7), "");
  EXPECT_EQ(roster.leaving(1), "fence 7;last 1:1;");
  EXPECT_EQ(roster.killed(7), "");
  EXPECT_EQ(roster.done(1), "");
}

TEST(Roster, AJoinerThatIsAskedToEndIsFenced) {
  Told roster(1, {.least = 1, .most = 2}, 2);
  EXPECT_EQ(roster.hear(Tick{}), "start 1;");
  EXPECT_EQ(roster.started(1, 1), "");
  EXPECT_EQ(roster.leaving(1), "fence 1;");
  EXPECT_EQ(roster.leaving(0), "plan 1;");
  EXPECT_EQ(roster.ready(0, 1), "last 1:0;");
  EXPECT_EQ(roster.killed(1), "") << "nothing is started";
}

TEST(Roster, AMemberLeavesOnceAnotherOneHasTheState) {
  Told roster(1, {.least = 1, .most = 2}, 2);
  EXPECT_EQ(roster.hear(Tick{}), "start 1;");
  (void)roster.started(1, 1);
  EXPECT_EQ(roster.ready(1, 0), "plan 1;");
  EXPECT_EQ(roster.ready(0, 1, 22), "");
  EXPECT_EQ(roster.ready(1, 1), "commit 1:01;");
  EXPECT_EQ(roster.offered(0, false), "plan 2;");
  EXPECT_EQ(roster.ready(0, 2, 22), "");
  EXPECT_EQ(roster.ready(1, 2, 0), "commit 2:01;plan 3;") << "it has not got it yet";
  EXPECT_EQ(roster.ready(0, 3, 23), "");
  EXPECT_EQ(roster.ready(1, 3, 22), "fence 0;commit 3:1;") << "but for a step";
}

TEST(Roster, StopsWhereNobodyIsLeftWhoHasTheState) {
  Told roster(1, {.least = 1, .most = 2}, 2);
  (void)roster.hear(Tick{});
  (void)roster.started(1, 1);
  (void)roster.ready(1, 0);
  (void)roster.ready(0, 1, 22);
  EXPECT_EQ(roster.ready(1, 1), "commit 1:01;");
  EXPECT_EQ(roster.killed(0), "prepare 2;start 0;");
  EXPECT_EQ(roster.ready(1, 2, 0), "stop;") << "it would begin anew";
}

TEST(Roster, NothingIsStartedOnAHostThatIsLost) {
  Told roster(2, {.least = 1, .most = 2});
  EXPECT_EQ(roster.hear(Ended{.member = uuid(1), .how = "host lost", .host_lost = true}),
            "prepare 1;");
  EXPECT_EQ(roster.offered(1, true), "start 1;") << "it is back";
}

// -- whatever happens -----------------------------------------------------------------------------

/// Processes and their roster, with messages that come late, twice and in any order, and processes
/// that are killed, finish or never answer, and slots that come and go, at random.
class Fates {
 public:
  explicit Fates(uint32_t seed)
      : random_(seed),
        first_(1 + pick(6)),
        slots_(first_ + pick(4)),
        asks_(pick(5) == 0),
        options_{.least = 1 + pick(first_),
                 .most = pick(3) == 0 ? 0 : first_ + pick(4),
                 .patience = seconds(60),
                 .step = seconds(20),
                 .policy = standard_policy({.replacement = seconds(pick(3) == 0 ? 10 : 0)})},
        state_(begin(uuids(first_), static_cast<size_t>(slots_))) {
    for (int i = 0; i < first_; ++i) processes_.push_back({.slot = static_cast<size_t>(i)});
    for (const Member& member : state_.members) last_map_.push_back(member.uuid);
    for (size_t slot = 0; slot < state_.slots.size(); ++slot) state_.slots[slot].host = slot % 3;
  }

  void run() {
    constexpr int kEvents = 250;
    for (int i = 0; i < kEvents && !state_.stopped; ++i) {
      now_ = now_ + seconds(pick(6));
      happen();
    }
    // The faults stop: whoever lives answers, and all slots are there.
    for (int slot = 0; slot < slots_; ++slot) offer(slot, /*usable=*/true);
    for (int i = 0; i < 20 && !state_.stopped; ++i) {
      now_ = now_ + seconds(60);
      bury();
      hear(Tick{});
      for (size_t process = 0; process < processes_.size(); ++process) {
        processes_[process].silent = false;
        answer(static_cast<int>(process));
      }
    }
    EXPECT_EQ(state_.stopped, stops_ > 0);
    EXPECT_TRUE(state_.stopped || !state_.changing()) << "it makes progress";
    const int left = static_cast<int>(state_.members.size());
    EXPECT_TRUE(state_.stopped || state_.last || left == 0 || left + state_.done >= options_.least);
    const bool grows =
        options_.most > 0 && state_.done == 0 && left > 0 && !state_.stopped && !state_.last;
    EXPECT_TRUE(!grows || left >= std::min(options_.most, slots_)) << "it grows back";
  }

  [[nodiscard]] size_t joined() const { return joined_; }
  [[nodiscard]] size_t lasts() const { return lasts_; }

 private:
  struct Process {
    size_t slot = 0;
    bool alive = true;
    bool fenced = false;  ///< And its end was not said yet.
    bool silent = false;
  };

  int pick(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }

  void happen() {
    const int process = pick(static_cast<int>(processes_.size()));
    switch (pick(31)) {
      case 0:
        return end(process, /*well=*/false);
      case 1:
        return pick(8) == 0 && is_member(process) ? end(process, /*well=*/true) : void();
      case 2:
        processes_[static_cast<size_t>(process)].silent = true;
        return;
      case 3:
        return hear(Tick{});
      case 4:  // Late: of any epoch there was.
        return hear(Ready{.member = uuid(process),
                          .epoch = static_cast<uint32_t>(pick(static_cast<int>(newest_) + 1))});
      case 5:
        return hear(Frozen{.member = uuid(process), .how = "frozen"});
      case 6:
        return offer(pick(slots_), pick(4) > 0);
      case 7:
        return bury();
      case 8:
        return hear(Ready{.member = uuid(process),
                          .epoch = state_.epoch,
                          .lost = uuid(pick(static_cast<int>(processes_.size()))),
                          .how = "lost"});
      case 9:
        return asks_ ? hear(Leaving{.members = {uuid(process)}, .how = "asked"}) : void();
      default:
        return answer(process);
    }
  }

  [[nodiscard]] bool is_member(int process) const {
    return std::ranges::find(last_map_, uuid(process)) != last_map_.end();
  }

  void offer(int slot, bool usable) {
    const auto number = static_cast<size_t>(slot);
    hear(Offered{.slot = number, .usable = usable, .host = number % 3});
  }

  /// The end of those that were fenced is said some time.
  void bury() {
    for (size_t process = 0; process < processes_.size(); ++process) {
      if (std::exchange(processes_[process].fenced, false))
        hear(Ended{.member = uuid(static_cast<int>(process)), .how = "fenced"});
    }
  }

  void end(int process, bool well) {
    Process& ends = processes_[static_cast<size_t>(process)];
    ends.alive = ends.fenced = false;
    hear(Ended{.member = uuid(process), .well = well, .how = "ended"});
  }

  void answer(int process) {
    const Process& answers = processes_[static_cast<size_t>(process)];
    if (answers.alive && !answers.silent)
      hear(Ready{.member = uuid(process), .epoch = state_.prepared});
  }

  void hear(const Event& event) {
    Decision decision = decide(now_, state_, event, options_);
    ASSERT_GE(decision.state.epoch, state_.epoch) << "epochs never go back";
    ASSERT_GE(decision.state.prepared, decision.state.epoch);
    state_ = std::move(decision.state);
    const Time due = wake(state_, options_);
    EXPECT_TRUE(due > now_ || std::holds_alternative<Offered>(event) || due == state_.until ||
                due == state_.judge_at)
        << "nothing is due that was done";
    for (const Action& action : decision.actions)
      std::visit([this](const auto& what) { check(what); }, action);
  }

  void check(const Prepare& prepare) {
    EXPECT_GT(prepare.epoch, newest_) << "a number is given out once";
    newest_ = prepare.epoch;
  }
  void check(const Commit& commit) {
    EXPECT_GT(commit.epoch, last_epoch_) << "one map an epoch";
    EXPECT_EQ(commit.epoch, newest_);
    last_epoch_ = commit.epoch;
    ASSERT_LE(commit.joined, commit.members.size());
    const size_t stayed = commit.members.size() - commit.joined;
    EXPECT_GT(stayed, 0U) << "somebody has the job's state";
    auto from = last_map_.begin();
    for (size_t rank = 0; rank < stayed; ++rank) {
      from = std::find(from, last_map_.end(), commit.members[rank]);
      ASSERT_NE(from, last_map_.end()) << "ranks keep their order";
    }
    for (size_t rank = stayed; rank < commit.members.size(); ++rank)
      EXPECT_FALSE(is_member(number_of(commit.members[rank]))) << "joiners come behind them";
    for (const MemberUuid& member : commit.members) {
      const Process& process = processes_[static_cast<size_t>(number_of(member))];
      EXPECT_TRUE(process.alive) << "nobody waits for one that has ended";
    }
    EXPECT_TRUE(commit.last ||
                static_cast<int>(commit.members.size()) + state_.done >= options_.least);
    lasts_ += commit.last ? 1 : 0;
    const int allowed = commit.joined > 0 ? options_.most : 1024;
    EXPECT_LE(static_cast<int>(commit.members.size()), allowed);
    joined_ += commit.joined;
    last_map_ = commit.members;
  }
  void check(const Fence& fence) {
    Process& process = processes_[static_cast<size_t>(number_of(fence.member))];
    EXPECT_TRUE(process.alive) << "once";
    process.alive = false;
    process.fenced = true;
  }
  void check(const Start& start) {
    for (const Process& process : processes_)
      EXPECT_FALSE((process.alive || process.fenced) && process.slot == start.slot)
          << "one process a slot";
    EXPECT_TRUE(state_.done == 0 && !state_.last) << "who joins would have no work";
    processes_.push_back({.slot = start.slot});
    hear(Started{.slot = start.slot, .joiner = uuid(static_cast<int>(processes_.size()) - 1)});
  }
  void check(const Stop& /*stop*/) { ++stops_; }
  void check(const Tell& /*tell*/) {}

  std::mt19937 random_;
  int first_;
  int slots_;
  bool asks_;  ///< Members to end.
  Options options_;
  State state_;
  Time now_{};
  std::vector<Process> processes_;
  std::vector<MemberUuid> last_map_;  ///< Of the epoch that is.
  uint32_t last_epoch_ = 0;
  uint32_t newest_ = 0;
  size_t joined_ = 0;
  size_t lasts_ = 0;  ///< Last epochs.
  int stops_ = 0;
};

TEST(Roster, KeepsItsPromisesWhateverHappens) {
  constexpr uint32_t kSeeds = 10'000;
  size_t joined = 0;
  size_t lasts = 0;
  for (uint32_t seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Fates fates(seed);
    fates.run();
    joined += fates.joined();
    lasts += fates.lasts();
  }
  EXPECT_GT(joined, kSeeds / 2) << "else it shows little";
  EXPECT_GT(lasts, kSeeds / 20);
}

}  // namespace
}  // namespace corro::coord
