#include "launch/agents.h"

#include <gtest/gtest.h>

namespace corro::launch {
namespace {

std::vector<JobHost> remote_hosts(size_t count) {
  std::vector<JobHost> hosts(count);
  for (JobHost& host : hosts) host.own = false;
  return hosts;
}

TEST(PlanTree, LeavesFewHostsToTheLauncher) {
  for (const auto& parent : plan_tree(remote_hosts(32), 32)) EXPECT_FALSE(parent);
}

TEST(PlanTree, GivesNobodyMoreThanTheFanOutAndStartsParentsFirst) {
  constexpr size_t kHosts = 2000;
  constexpr size_t kFanOut = 32;
  const auto parents = plan_tree(remote_hosts(kHosts), kFanOut);
  std::vector<size_t> branches(kHosts);
  size_t of_launcher = 0;
  for (size_t host = 0; host < kHosts; ++host) {
    if (!parents[host]) ++of_launcher;
    if (!parents[host]) continue;
    EXPECT_LT(*parents[host], host);
    EXPECT_LE(++branches[*parents[host]], kFanOut);
  }
  EXPECT_EQ(of_launcher, kFanOut);
}

TEST(PlanTree, LeavesTheOwnHostOut) {
  auto hosts = remote_hosts(4);
  hosts[1].own = true;
  const auto parents = plan_tree(hosts, 1);
  EXPECT_FALSE(parents[0]);
  EXPECT_FALSE(parents[1]);
  EXPECT_EQ(parents[2], 0);
  EXPECT_EQ(parents[3], 2);
}

TEST(SilenceOf, IsShortForAHostThatRanksHaveLostALittleBefore) {
  using std::chrono::seconds;
  AgentLink link;
  const Time now = Time{} + seconds(100);
  EXPECT_EQ(silence_of(link, now), seconds(10));
  link.suspected = now - seconds(9);
  EXPECT_EQ(silence_of(link, now), seconds(3));
  EXPECT_EQ(silence_of(link, now + seconds(2)), seconds(10));
}

TEST(Agents, OfNobodySilenceIsCountedWhileTheLauncherWasStopped) {
  using std::chrono::seconds;
  auto agents = Agents::create(remote_hosts(2), {}).value();
  const Time now = monotonic_now();
  agents[0].heard = now - seconds(25);
  agents[1].heard = now;  // What it had said was read just now.
  agents.excuse_silence(seconds(20), now);
  EXPECT_EQ(agents[0].heard, now - seconds(5));
  EXPECT_EQ(agents[1].heard, now);
}

}  // namespace
}  // namespace corro::launch
