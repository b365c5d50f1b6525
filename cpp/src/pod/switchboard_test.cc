#include "pod/switchboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::pod {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = Order::Kind;

constexpr Duration kSilence = std::chrono::seconds(10);

class SwitchboardTest : public ::testing::Test {
 protected:
  static secure::PodIdentity identity(const std::string& member, uint32_t generation = 0) {
    return {.job_uid = "u", .member = member, .generation = generation};
  }
  void enlist(ConnectionId from, const std::string& member, uint32_t generation = 0) {
    board_.enlist(from, identity(member, generation),
                  {.command = {"/bin/train"}, .directory = "/work"}, now_);
  }
  void reach(ConnectionId from, const std::string& host, uint32_t generation = 0) {
    board_.reach(from, identity("launcher", generation), host, now_);
  }
  /// Of all orders since the last call those that say T, by whom they are for.
  template <typename T>
  std::vector<std::pair<ConnectionId, T>> said() {
    collect();
    std::vector<std::pair<ConnectionId, T>> found;
    std::erase_if(orders_, [&](const Order& order) {
      const bool says = order.kind == Kind::kSay || order.kind == Kind::kSayAndEnd;
      if (!says || !std::holds_alternative<T>(order.body)) return false;
      found.emplace_back(order.to, std::get<T>(order.body));
      return true;
    });
    return found;
  }
  int count(Kind kind) {
    collect();
    return static_cast<int>(
        std::erase_if(orders_, [&](const Order& order) { return order.kind == kind; }));
  }
  std::optional<Order> join() {
    collect();
    for (const Order& order : orders_)
      if (order.kind == Kind::kJoin) return order;
    return std::nullopt;
  }
  /// Agents answer every LOOK until now.
  void answer(std::initializer_list<ConnectionId> agents) {
    const auto looks = said<agent::Look>();
    for (const auto& [to, look] : looks)
      if (std::ranges::count(agents, to) > 0) board_.hear_alive(to, now_);
  }

  Time now_{std::chrono::seconds(100)};
  Switchboard board_{{.job = "mnist", .silence = kSilence, .secret = {std::byte{7}}}};

 private:
  void collect() {
    for (Order& order : board_.take_orders()) orders_.push_back(std::move(order));
  }
  std::vector<Order> orders_;
};

TEST_F(SwitchboardTest, WhatRanksOfAPodHavePutIsToldToAllOthersAndToWhoComesLater) {
  enlist(1, "worker-0");
  enlist(2, "worker-1");
  const auto meetings = said<agent::Meeting>();
  ASSERT_EQ(meetings.size(), 2U);
  EXPECT_EQ(meetings[0].second.secret, wire::Secret{std::byte{7}});
  board_.record(1, {.key = "7/rank/0", .value = {std::byte{1}}});
  board_.record(9, {.key = "7/rank/1", .value = {}});  // No agent.
  auto records = said<agent::Record>();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].first, 2U);
  enlist(3, "launcher");
  records = said<agent::Record>();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].first, 3U);
  EXPECT_EQ(records[0].second.key, "7/rank/0");
}

TEST_F(SwitchboardTest, AShellIsJoinedWithASessionOfItsHostsAgent) {
  enlist(1, "worker-0");
  enlist(2, "worker-1");
  reach(3, "mnist-worker-1");
  const auto attended = said<agent::Attend>();
  ASSERT_EQ(attended.size(), 1U);
  EXPECT_EQ(attended[0].first, 2U);
  EXPECT_FALSE(join().has_value());
  board_.meet(4, identity("worker-1"), attended[0].second.session);
  ASSERT_TRUE(join().has_value());
  EXPECT_EQ(join()->to, 3U);
  EXPECT_EQ(join()->with, 4U);
}

TEST_F(SwitchboardTest, AShellWaitsForAnAgentThatIsNotThereYet) {
  reach(3, "mnist-worker-1.mnist.ns.svc");
  EXPECT_TRUE(said<agent::Attend>().empty());
  enlist(1, "worker-0");
  EXPECT_TRUE(said<agent::Attend>().empty());
  enlist(2, "worker-1");
  EXPECT_EQ(said<agent::Attend>().size(), 1U);
}

TEST_F(SwitchboardTest, ItIsKnownForWhomShellsWait) {
  EXPECT_THAT(board_.missing(), IsEmpty());
  reach(3, "mnist-worker-1");
  reach(4, "mnist-worker-1");
  EXPECT_THAT(board_.missing(), ElementsAre("worker-1"));
  enlist(2, "worker-1");
  EXPECT_THAT(board_.missing(), IsEmpty());
}

TEST(SwitchboardOfRanks, ItIsKnownWhichWorkersHaveNotComeUntilAllAreDismissed) {
  Switchboard board{{.job = "mnist", .runs_ranks = true, .workers = 3, .silence = kSilence}};
  const agent::Enlist enlist{.command = {"/bin/train"}, .directory = "/work"};
  const auto come = [&](ConnectionId from, const std::string& member) {
    board.enlist(from, {.job_uid = "u", .member = member}, enlist, Time{});
  };
  come(1, "worker-1");
  EXPECT_THAT(board.missing(), ElementsAre("worker-0", "worker-2"));
  come(2, "worker-0");
  come(3, "worker-2");
  EXPECT_THAT(board.missing(), IsEmpty());
  board.end(1);
  EXPECT_THAT(board.missing(), ElementsAre("worker-1"));
  come(4, "worker-1");
  board.end_ranks(0, Time{});
  EXPECT_THAT(board.missing(), IsEmpty()) << "nobody waits for them any more";
}

TEST_F(SwitchboardTest, AHostOfNobodyIsRefused) {
  reach(3, "mnist-worker-x");
  const auto refused = said<agent::Refused>();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].second.code, Code::kNotFound);
  EXPECT_THAT(refused[0].second.why, HasSubstr("mnist-worker-x"));
}

TEST_F(SwitchboardTest, AShellOfAHostThatTheLauncherNamesNoMoreIsRefused) {
  enlist(1, "launcher");
  reach(3, "mnist-worker-1.mnist.ns.svc");
  reach(4, "mnist-worker-2");
  board_.hear_host_lost(1, "mnist-worker-1.mnist.ns.svc");
  const auto refused = said<agent::Refused>();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].first, 3U);
  EXPECT_THAT(refused[0].second.why, HasSubstr("no host of the job any more"));
  enlist(2, "worker-1");
  EXPECT_TRUE(said<agent::Attend>().empty());
}

TEST_F(SwitchboardTest, AShellOfAHostThatIsThereIsJoinedWhateverTheLauncherNames) {
  enlist(1, "launcher");
  enlist(2, "worker-1");
  reach(3, "mnist-worker-1");
  board_.hear_host_lost(1, "mnist-worker-1");
  board_.hear_leave(2);
  board_.hear_host_lost(1, "mnist-worker-1");
  EXPECT_TRUE(said<agent::Refused>().empty());
  board_.meet(4, identity("worker-1"), said<agent::Attend>().at(0).second.session);
  EXPECT_TRUE(join().has_value());
}

TEST_F(SwitchboardTest, NobodyButALauncherNamesHosts) {
  enlist(1, "worker-0");
  reach(3, "mnist-worker-1");
  board_.hear_host_lost(1, "mnist-worker-1");
  board_.hear_host_lost(9, "mnist-worker-1");
  EXPECT_TRUE(said<agent::Refused>().empty());
}

TEST_F(SwitchboardTest, ASessionOfAnotherMemberIsRefused) {
  enlist(1, "worker-0");
  reach(3, "mnist-worker-0");
  const auto session = said<agent::Attend>().at(0).second.session;
  board_.meet(4, identity("worker-1"), session);
  EXPECT_FALSE(join().has_value());
  EXPECT_EQ(said<agent::Refused>().at(0).first, 4U);
  board_.meet(5, identity("worker-0"), session);
  EXPECT_TRUE(join().has_value());
}

TEST_F(SwitchboardTest, TheNewestGenerationWins) {
  enlist(1, "worker-0", 1);
  enlist(2, "worker-0", 2);
  EXPECT_EQ(said<agent::Refused>().at(0).first, 1U);
  reach(3, "mnist-worker-0");
  EXPECT_EQ(said<agent::Attend>().at(0).first, 2U);
  enlist(4, "worker-0", 1);
  const auto refused = said<agent::Refused>();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].first, 4U);
  EXPECT_THAT(refused[0].second.why, HasSubstr("replaced"));
}

TEST_F(SwitchboardTest, AnOldGenerationStartsNothing) {
  enlist(1, "launcher", 1);
  enlist(2, "worker-0");
  reach(3, "mnist-worker-0", 0);
  EXPECT_EQ(said<agent::Refused>().at(0).first, 3U);
  EXPECT_TRUE(said<agent::Attend>().empty());
}

TEST_F(SwitchboardTest, AnAgentThatGoesGivesItsShellsBack) {
  enlist(1, "worker-0");
  reach(3, "mnist-worker-0");
  EXPECT_EQ(said<agent::Attend>().size(), 1U);
  board_.end(1);
  enlist(2, "worker-0", 1);
  EXPECT_EQ(said<agent::Attend>().at(0).first, 2U);
}

TEST_F(SwitchboardTest, NobodyIsSentToALeavingAgent) {
  enlist(1, "worker-0");
  board_.hear_leave(1);
  reach(3, "mnist-worker-0");
  EXPECT_TRUE(said<agent::Attend>().empty());
  enlist(2, "worker-0", 1);
  EXPECT_EQ(said<agent::Attend>().at(0).first, 2U);
}

TEST_F(SwitchboardTest, AnAttendedAgentThatDoesNotDialFailsTheShell) {
  enlist(1, "worker-0");
  reach(3, "mnist-worker-0");
  for (int second = 0; second < 11; ++second) {
    now_ = now_ + std::chrono::seconds(1);
    board_.tick(now_);
    answer({1});
  }
  const auto refused = said<agent::Refused>();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].first, 3U);
}

TEST_F(SwitchboardTest, ASilentAgentIsLost) {
  enlist(1, "worker-0");
  board_.tick(now_);
  answer({1});
  now_ = now_ + kSilence - std::chrono::seconds(1);
  board_.tick(now_);
  EXPECT_EQ(board_.agents(), 1U);
  now_ = now_ + std::chrono::seconds(1);
  board_.tick(now_);
  EXPECT_EQ(board_.agents(), 0U);
  EXPECT_EQ(said<agent::Refused>().at(0).first, 1U);
}

TEST_F(SwitchboardTest, OfAWorkerThatVanishesTheLauncherHears) {
  enlist(1, "launcher");
  enlist(2, "worker-0");
  for (int second = 0; second < 10; ++second) {
    now_ = now_ + std::chrono::seconds(1);
    board_.tick(now_);
    answer({1});
  }
  const auto lost = said<agent::HostLost>();
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].first, 1U);
  EXPECT_EQ(lost[0].second.host, "mnist-worker-0");
}

TEST_F(SwitchboardTest, OfAWorkerThatWasReplacedBeforeItsEndTheLauncherHears) {
  enlist(1, "launcher");
  enlist(2, "worker-0");
  enlist(3, "worker-0");  // It has dialled again.
  EXPECT_TRUE(said<agent::HostLost>().empty());
  enlist(4, "worker-0", 1);
  EXPECT_EQ(said<agent::HostLost>().size(), 1U);
  board_.hear_leave(4);
  enlist(5, "worker-0", 2);
  EXPECT_TRUE(said<agent::HostLost>().empty());
}

TEST_F(SwitchboardTest, OfAConnectionThatEndsTheLauncherNeedNotHear) {
  enlist(1, "launcher");
  enlist(2, "worker-0");
  board_.end(2);
  EXPECT_TRUE(said<agent::HostLost>().empty());
}

// -- mpirun's end ---------------------------------------------------------------------------------

TEST_F(SwitchboardTest, AFailureWithoutALossEndsTheLauncher) {
  enlist(1, "launcher");
  enlist(2, "worker-0");
  board_.propose(1, {.status = 3}, now_);
  EXPECT_TRUE(said<agent::Dismiss>().empty()) << "before the roll was called";
  answer({2});
  const auto dismissed = said<agent::Dismiss>();
  ASSERT_EQ(dismissed.size(), 1U);
  EXPECT_EQ(dismissed[0].first, 1U);
  EXPECT_EQ(dismissed[0].second.status, 3);
}

TEST_F(SwitchboardTest, AnAnswerToAnEarlierLookDoesNotCount) {
  enlist(1, "launcher");
  enlist(2, "worker-0");
  board_.tick(now_);
  board_.propose(1, {.status = 3}, now_);
  board_.hear_alive(2, now_);
  EXPECT_TRUE(said<agent::Dismiss>().empty());
  board_.hear_alive(2, now_);
  EXPECT_EQ(said<agent::Dismiss>().size(), 1U);
}

TEST_F(SwitchboardTest, ALossThatIsHeardAfterTheFailureCounts) {
  enlist(1, "launcher");
  enlist(2, "worker-0");
  enlist(3, "worker-1");
  board_.propose(1, {.status = 137}, now_);
  answer({2});
  board_.end(3);
  EXPECT_TRUE(said<agent::Dismiss>().empty());
  EXPECT_TRUE(said<agent::Proceed>().empty()) << "before it is back";
  enlist(4, "worker-1", 1);
  EXPECT_EQ(said<agent::Proceed>().at(0).first, 1U);
  const auto reset = said<agent::Reset>();
  ASSERT_EQ(reset.size(), 2U);
  EXPECT_EQ(reset[0].first, 2U);
  EXPECT_EQ(reset[1].first, 4U);
  board_.propose(1, {.status = 1}, now_);
  answer({2, 4});
  EXPECT_EQ(said<agent::Dismiss>().size(), 1U) << "the loss was counted twice";
}

TEST_F(SwitchboardTest, AReplacementThatDoesNotComeIsNotWaitedForLong) {
  enlist(1, "launcher");
  enlist(2, "worker-0");
  board_.end(2);
  board_.propose(1, {.status = 1}, now_);
  EXPECT_TRUE(said<agent::Proceed>().empty());
  now_ = now_ + kSilence;
  board_.hear_alive(1, now_);
  EXPECT_EQ(said<agent::Proceed>().size(), 1U);
}

TEST_F(SwitchboardTest, ALossThatTheCommandSurvivedIsNoCauseOfAFailureLongAfter) {
  enlist(1, "launcher");
  enlist(2, "worker-0");
  board_.end(2);
  enlist(3, "worker-0", 1);
  now_ = now_ + kLossCounts;
  board_.propose(1, {.status = 3}, now_);
  answer({3});
  EXPECT_TRUE(said<agent::Proceed>().empty());
  EXPECT_EQ(said<agent::Dismiss>().size(), 1U);
}

TEST_F(SwitchboardTest, ALossOfLongAgoIsNotWaitedFor) {
  enlist(1, "launcher");
  enlist(2, "worker-0");
  enlist(3, "worker-1");
  board_.end(3);  // The job was made smaller, and the command has gone on.
  now_ = now_ + kLossCounts;
  board_.hear_alive(1, now_);
  board_.end(2);
  enlist(4, "worker-0", 1);
  board_.propose(1, {.status = 3}, now_);
  answer({4});
  EXPECT_EQ(said<agent::Proceed>().size(), 1U);
}

TEST_F(SwitchboardTest, ALossCountsUntilTheLastOfThePodIsHeard) {
  enlist(1, "launcher");
  enlist(2, "worker-0");
  board_.hear_leave(2);
  now_ = now_ + kLossCounts;  // What its pod is given to end.
  board_.hear_alive(1, now_);
  board_.end(2);
  enlist(3, "worker-0", 1);
  board_.propose(1, {.status = 143}, now_);
  answer({3});
  EXPECT_EQ(said<agent::Proceed>().size(), 1U);
}

TEST_F(SwitchboardTest, ALossThatTheAgentItselfSawCounts) {
  enlist(1, "launcher");
  board_.propose(1, {.status = 1, .saw_loss = true}, now_);
  EXPECT_EQ(said<agent::Proceed>().size(), 1U);
}

// -- the ranks of a CorroJob ----------------------------------------------------------------------

class RanksSwitchboardTest : public SwitchboardTest {
 protected:
  RanksSwitchboardTest() {
    board_ = Switchboard({.job = "mnist", .runs_ranks = true, .workers = 2, .silence = kSilence});
  }
};

TEST_F(RanksSwitchboardTest, RanksStartOnceAllWorkersAreThere) {
  enlist(1, "worker-0");
  EXPECT_EQ(count(Kind::kStartRanks), 0);
  enlist(2, "worker-1");
  EXPECT_EQ(count(Kind::kStartRanks), 1);
  EXPECT_EQ(board_.enlisted()->directory, "/work");
}

TEST_F(RanksSwitchboardTest, AGoodEndDismissesAll) {
  enlist(1, "worker-0");
  enlist(2, "worker-1");
  board_.end_ranks(0, now_);
  const auto dismissed = said<agent::Dismiss>();
  ASSERT_EQ(dismissed.size(), 2U);
  EXPECT_EQ(dismissed[0].second.status, 0);
  board_.end(1);
  board_.end(2);
  EXPECT_EQ(count(Kind::kStartRanks), 1);
}

TEST_F(RanksSwitchboardTest, AFailureWithoutALossDismissesAllWithItsStatus) {
  enlist(1, "worker-0");
  enlist(2, "worker-1");
  board_.end_ranks(7, now_);
  EXPECT_TRUE(said<agent::Dismiss>().empty());
  answer({1, 2});
  const auto dismissed = said<agent::Dismiss>();
  ASSERT_EQ(dismissed.size(), 2U);
  EXPECT_EQ(dismissed[0].second.status, 7);
}

TEST_F(RanksSwitchboardTest, ALackOfMemoryIsWhatAllPodsEndWith) {
  enlist(1, "worker-0");
  enlist(2, "worker-1");
  board_.end_ranks(137, now_);
  board_.hear_trouble(2, "out of memory: cgroup limit 96 MiB");
  answer({1, 2});
  const auto dismissed = said<agent::Dismiss>();
  ASSERT_EQ(dismissed.size(), 2U);
  for (const auto& [to, dismiss] : dismissed)
    EXPECT_EQ(dismiss.why, "out of memory: cgroup limit 96 MiB, on mnist-worker-1");
}

TEST_F(RanksSwitchboardTest, ALackOfMemoryOfAnEarlierRunIsForgotten) {
  enlist(1, "worker-0");
  enlist(2, "worker-1");
  board_.hear_trouble(1, "out of memory: cgroup limit 96 MiB");
  board_.end(2);
  board_.end_ranks(1, now_);
  answer({1});
  enlist(3, "worker-1", 1);
  board_.end_ranks(1, now_);
  answer({1, 3});
  EXPECT_THAT(said<agent::Dismiss>().at(0).second.why, HasSubstr("the ranks have failed"));
}

TEST_F(RanksSwitchboardTest, AfterALossTheOthersStayAndRanksStartAgain) {
  enlist(1, "worker-0");
  enlist(2, "worker-1");
  EXPECT_EQ(count(Kind::kStartRanks), 1);
  board_.end(2);
  board_.end_ranks(1, now_);
  answer({1});
  EXPECT_TRUE(said<agent::Dismiss>().empty());
  EXPECT_EQ(count(Kind::kStartRanks), 0);
  enlist(3, "worker-1", 1);
  EXPECT_EQ(count(Kind::kStartRanks), 1);
}

TEST_F(RanksSwitchboardTest, ALossIsTheCauseHoweverLongTheRanksTakeToEnd) {
  enlist(1, "worker-0");
  enlist(2, "worker-1");
  enlist(3, "worker-1", 1);
  EXPECT_EQ(count(Kind::kStartRanks), 1);
  now_ = now_ + kLossCounts;
  board_.end_ranks(1, now_);
  answer({1, 3});
  EXPECT_EQ(count(Kind::kStartRanks), 1);
}

TEST_F(RanksSwitchboardTest, AReplacementThatIsThereFirstWaitsForTheRanksEnd) {
  enlist(1, "worker-0");
  enlist(2, "worker-1");
  EXPECT_EQ(count(Kind::kStartRanks), 1);
  enlist(3, "worker-1", 1);
  EXPECT_EQ(count(Kind::kStartRanks), 0);
  board_.end_ranks(1, now_);
  answer({1, 3});
  EXPECT_EQ(count(Kind::kStartRanks), 1);
}

TEST_F(RanksSwitchboardTest, WithoutACommandThereIsNothingToRun) {
  for (const ConnectionId worker : {1U, 2U})
    board_.enlist(worker, identity("worker-" + std::to_string(worker - 1)), {}, now_);
  EXPECT_EQ(count(Kind::kStartRanks), 0);
  const auto dismissed = said<agent::Dismiss>();
  ASSERT_EQ(dismissed.size(), 2U);
  EXPECT_THAT(dismissed[0].second.why, HasSubstr("command"));
}

}  // namespace
}  // namespace corro::pod
