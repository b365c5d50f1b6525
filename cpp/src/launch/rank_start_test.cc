#include "launch/rank_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "agent/membership.h"

namespace corro::launch {
namespace {

using testing::ElementsAre;

TEST(RankStart, EveryRankIsANewMemberOfEpoch0) {
  constexpr int kRanks = 100;
  const wire::Digest job = wire::digest_of("job");
  const auto members = new_members(job, kRanks);
  ASSERT_EQ(members.size(), kRanks);
  std::set<agent::MemberUuid> uuids;
  for (int rank = 0; rank < kRanks; ++rank) {
    const agent::Subject& member = members[static_cast<size_t>(rank)];
    EXPECT_EQ(member.rank, rank);
    EXPECT_EQ(member.job, job);
    EXPECT_EQ(member.epoch, 0U);
    EXPECT_EQ(member.incarnation, 1U);
    uuids.insert(member.member);
  }
  EXPECT_EQ(uuids.size(), kRanks);
}

TEST(RankStart, AgentsAreToldWhoIsWhereInEpoch0) {
  JobFacts job;
  job.hosts.resize(2);
  job.hosts[0].name = "node1";
  job.hosts[0].ranks = 2;
  job.hosts[1].name = "node2";
  job.hosts[1].first_rank = 2;
  const auto members = new_members(wire::digest_of("job"), 3);
  const agent::Message message = announce_members(job, members, std::vector<size_t>{0, 0, 1});
  EXPECT_EQ(message.about, (agent::Subject{.job = wire::digest_of("job"), .epoch = 0}));
  const auto& list = std::get<agent::Members>(message.body);
  EXPECT_THAT(list.hosts, ElementsAre("node1", "node2"));
  ASSERT_EQ(list.members.size(), 3U);
  EXPECT_EQ(list.members[2], (agent::Member{2, members[2].member, 1, 1}));
  agent::Membership membership;
  ASSERT_TRUE(membership.announce(0, list).ok());
  for (const agent::Subject& member : members) EXPECT_TRUE(membership.admits(member));
  EXPECT_EQ(membership.host_of(members[1]), "node1");
  EXPECT_EQ(membership.host_of(members[2]), "node2");
}

}  // namespace
}  // namespace corro::launch
