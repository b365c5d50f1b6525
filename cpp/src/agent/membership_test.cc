#include "agent/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::agent {
namespace {

using testing::HasSubstr;

MemberUuid uuid_of(int who) { return {static_cast<std::byte>(who)}; }

Member member(int32_t rank, int who, int32_t host = 0, uint32_t incarnation = 1) {
  return {.rank = rank, .uuid = uuid_of(who), .incarnation = incarnation, .host = host};
}

Subject process(uint32_t epoch, int who, uint32_t incarnation = 1) {
  return {.epoch = epoch, .rank = 0, .member = uuid_of(who), .incarnation = incarnation};
}

TEST(Membership, BeforeAnyListEveryProcessIsAMember) {
  Membership membership;
  membership.begin(3);
  EXPECT_EQ(membership.epoch(), 3U);
  EXPECT_TRUE(membership.admits(process(3, 7)));
  EXPECT_EQ(membership.find(process(3, 7)), nullptr);
  EXPECT_EQ(membership.host_of(process(3, 7)), "");
}

TEST(Membership, OnlyTheListsProcessesAreMembers) {
  Membership membership;
  ASSERT_TRUE(
      membership.announce(0, {{"node1", "node2"}, {member(0, 7), member(1, 8, 1, 4)}}).ok());
  EXPECT_TRUE(membership.admits(process(0, 7)));
  EXPECT_TRUE(membership.admits(process(0, 8, 4)));
  EXPECT_FALSE(membership.admits(process(0, 9))) << "another uuid";
  EXPECT_FALSE(membership.admits(process(0, 8, 3))) << "an older incarnation";
  EXPECT_TRUE(membership.admits(process(0, 8, 5))) << "a newer one";
  ASSERT_NE(membership.find(process(0, 8, 4)), nullptr);
  EXPECT_EQ(membership.find(process(0, 8, 4))->rank, 1);
}

TEST(Membership, AnEpochIsOverWhenANewerOneHasBegun) {
  Membership membership;
  membership.begin(2);
  EXPECT_TRUE(membership.is_over(1));
  EXPECT_FALSE(membership.is_over(2));
  EXPECT_FALSE(membership.is_over(3));
  ASSERT_TRUE(membership.announce(5, {{"a"}, {member(0, 7)}}).ok());
  EXPECT_EQ(membership.epoch(), 5U);
  EXPECT_TRUE(membership.is_over(4));
  EXPECT_FALSE(membership.is_over(5));
}

TEST(Membership, AProcessOfAnEpochToComeIsLookedAtWhenThatIsAnnounced) {
  Membership membership;
  ASSERT_TRUE(membership.announce(0, {{"a"}, {member(0, 7)}}).ok());
  const Subject joiner = process(1, 8);
  EXPECT_TRUE(membership.admits(joiner));
  EXPECT_EQ(membership.find(joiner), nullptr);
  EXPECT_EQ(membership.find(process(1, 7, 2)), nullptr) << "the list is of another process of it";
  ASSERT_TRUE(membership.announce(1, {{"a"}, {member(0, 7)}}).ok());
  EXPECT_FALSE(membership.admits(joiner));
  EXPECT_TRUE(membership.admits(process(0, 7))) << "it goes on from the epoch before";
}

TEST(Membership, ANewEpochMayGiveAMemberAnotherNumber) {
  Membership membership;
  ASSERT_TRUE(membership.announce(0, {{"a"}, {member(0, 7), member(1, 8)}}).ok());
  ASSERT_TRUE(membership.announce(1, {{"a"}, {member(0, 8)}}).ok());
  EXPECT_FALSE(membership.admits(process(0, 7)));
  EXPECT_EQ(membership.find(process(0, 8))->rank, 0);
}

TEST(Membership, NamesAHostOnlyWhereThereAreSeveral) {
  Membership one, two;
  ASSERT_TRUE(one.announce(0, {{"node1"}, {member(0, 7)}}).ok());
  ASSERT_TRUE(two.announce(0, {{"node1", "node2"}, {member(0, 7, 1)}}).ok());
  EXPECT_EQ(one.host_of(process(0, 7)), "");
  EXPECT_EQ(two.host_of(process(0, 7)), "node2");
  EXPECT_EQ(two.host_of(process(0, 8)), "") << "no member";
}

TEST(Membership, RefusesWhatIsNoListAndKeepsTheOneBefore) {
  const struct {
    Members members;
    const char* why;
  } kWrong[] = {
      {{{"a"}, {member(1, 8)}}, "MEMBERS of epoch 1: rank 1 stands at place 0"},
      {{{"a"}, {member(-1, 8)}}, "rank -1 stands at place 0"},
      {{{"a"}, {member(0, 8), member(0, 9)}}, "rank 0 stands at place 1"},
      {{{"a"}, {member(0, 8), member(1, 8)}}, "ranks 0 and 1 are one member"},
      {{{"a"}, {member(0, 8, 0, 0)}}, "rank 0 has no incarnation"},
      {{{"a"}, {member(0, 8, 1)}}, "rank 0 is on host 1, and there are 1"},
      {{{"a"}, {member(0, 8, -1)}}, "rank 0 is on host -1"},
      {{{}, {member(0, 8)}}, "rank 0 is on host 0, and there are 0"},
  };
  Membership membership;
  ASSERT_TRUE(membership.announce(0, {{"a"}, {member(0, 7)}}).ok());
  for (const auto& [members, why] : kWrong) {
    const Status status = membership.announce(1, members);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(why));
  }
  EXPECT_EQ(membership.epoch(), 0U);
  EXPECT_TRUE(membership.admits(process(0, 7)));
}

TEST(Membership, AnEpochHasOneList) {
  Membership membership;
  ASSERT_TRUE(membership.announce(4, {{"a"}, {member(0, 7)}}).ok());
  EXPECT_EQ(membership.announce(4, {{"a"}, {member(0, 8)}}).code(), Code::kAlreadyExists);
  EXPECT_EQ(membership.announce(3, {{"a"}, {member(0, 8)}}).message(),
            "MEMBERS of epoch 3: epoch 4 has begun");
  EXPECT_FALSE(membership.admits(process(4, 8)));
}

}  // namespace
}  // namespace corro::agent
