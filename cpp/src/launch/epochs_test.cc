#include "launch/epochs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "launch/rank_start.h"

namespace corro::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Two hosts with two ranks each.
JobFacts job() {
  JobFacts facts;
  facts.ranks = 4;
  facts.hosts.resize(2);
  facts.hosts[0].name = "node1";
  facts.hosts[0].ranks = 2;
  facts.hosts[1].name = "node2";
  facts.hosts[1].first_rank = 2;
  facts.hosts[1].ranks = 2;
  return facts;
}

Epochs epochs(std::optional<int> least) {
  return {job(), new_members(wire::digest_of("job"), 4), least};
}

/// Rank 1 is killed, and the others are ready.
Epochs::Orders lose_rank_1(Epochs& members) {
  (void)members.end(1, false, "rank 1 was killed", Time{});
  for (const size_t place : {0U, 2U}) (void)members.ready(place, 1, Time{});
  return members.ready(3, 1, Time{});
}

TEST(Epochs, TellsAllAgentsThatAnEpochComesAndThatItHasBegun) {
  Epochs members = epochs(2);
  const Epochs::Orders prepare = members.end(1, false, "rank 1 was killed", Time{});
  ASSERT_EQ(prepare.messages.size(), 1U);
  EXPECT_EQ(prepare.messages[0].about, (agent::Subject{.job = wire::digest_of("job"), .epoch = 1}));
  EXPECT_EQ(std::get<agent::Prepare>(prepare.messages[0].body).why, "rank 1 was killed");
  EXPECT_FALSE(prepare.begun);
  for (const size_t place : {0U, 2U}) EXPECT_TRUE(members.ready(place, 1, Time{}).messages.empty());
  const Epochs::Orders commit = members.ready(3, 1, Time{});
  ASSERT_EQ(commit.messages.size(), 1U);
  EXPECT_TRUE(commit.begun);
  EXPECT_EQ(commit.messages[0].about.epoch, 1U);
  const auto& list = std::get<agent::Members>(commit.messages[0].body).members;
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0], (agent::Member{0, members.subject(0).member, 1, 0}));
  EXPECT_EQ(list[1], (agent::Member{1, members.subject(2).member, 1, 1}));
  EXPECT_EQ(list[2], (agent::Member{2, members.subject(3).member, 1, 1}));
}

TEST(Epochs, APlaceKeepsItsNumberAndARankDoesNot) {
  Epochs members = epochs(2);
  const agent::Subject before = members.subject(2);
  (void)lose_rank_1(members);
  EXPECT_EQ(members.epoch(), 1U);
  EXPECT_EQ(members.size(), 3U);
  EXPECT_EQ(members.subject(2).rank, 1);
  EXPECT_EQ(members.subject(2).epoch, 1U);
  EXPECT_EQ(members.place_of_rank(1), 2);
  EXPECT_EQ(members.place_of_rank(3), -1);
  EXPECT_EQ(members.place_of_rank(-1), -1);
  EXPECT_EQ(members.place_of(before), 2U) << "said in the epoch before";
  EXPECT_EQ(members.place_of(members.subject(2)), 2U);
  agent::Subject other = before;
  other.incarnation = 2;
  EXPECT_EQ(members.place_of(other), std::nullopt);
  other = before;
  other.job = wire::digest_of("another");
  EXPECT_EQ(members.place_of(other), std::nullopt);
}

TEST(Epochs, WhoIsNotInTheNewEpochHasLeft) {
  Epochs members = epochs(2);
  (void)members.end(1, false, "rank 1 was killed", Time{});
  EXPECT_FALSE(members.left(1)) << "not before it has begun";
  for (const size_t place : {0U, 2U, 3U}) (void)members.ready(place, 1, Time{});
  EXPECT_TRUE(members.left(1));
  EXPECT_FALSE(members.left(2));
}

TEST(Epochs, WithTooFewTheJobStopsAndNobodyHasLeft) {
  Epochs members = epochs(3);
  (void)members.end(1, false, "rank 1 was killed", Time{});
  const Epochs::Orders orders = members.end(0, false, "rank 0 was killed", Time{});
  EXPECT_TRUE(orders.stop);
  EXPECT_THAT(orders.why, HasSubstr("2 ranks are left, at least 3 are needed"));
  EXPECT_FALSE(members.left(1)) << "it belongs to what has ended the job";
}

TEST(Epochs, EveryRankIsNeededWhereNobodySaysOtherwise) {
  Epochs members = epochs(std::nullopt);
  EXPECT_FALSE(members.elastic());
  EXPECT_TRUE(epochs(1).elastic());
  EXPECT_TRUE(members.end(1, false, "rank 1 was killed", Time{}).stop);
}

/// All orders of so many looks that see these places stopped.
std::vector<size_t> fenced_after(Epochs& members, int looks, const std::set<size_t>& stopped) {
  std::vector<size_t> fenced;
  for (int look = 0; look < looks; ++look) {
    for (size_t place = 0; place < 4; ++place) {
      const Epochs::Orders orders = members.see(place, stopped.contains(place), Time{});
      fenced.insert(fenced.end(), orders.fenced.begin(), orders.fenced.end());
    }
  }
  return fenced;
}

TEST(Epochs, WhoIsStoppedForLongBesideOthersIsToBeKilled) {
  Epochs members = epochs(2);
  EXPECT_THAT(fenced_after(members, kFrozenLooks - 1, {2}), ElementsAre());
  EXPECT_THAT(fenced_after(members, 1, {}), ElementsAre()) << "it was a moment";
  EXPECT_THAT(fenced_after(members, kFrozenLooks, {0, 1, 2, 3}), ElementsAre()) << "as by Ctrl-Z";
  EXPECT_THAT(fenced_after(members, 1, {}), ElementsAre());
  EXPECT_THAT(fenced_after(members, 2 * kFrozenLooks, {2}), ElementsAre(2U)) << "once";
}

TEST(Epochs, WhoIsNotReadyInTimeIsToBeKilled) {
  Epochs members = epochs(1);
  (void)members.end(1, false, "rank 1 was killed", Time{});
  (void)members.ready(0, 1, Time{});
  (void)members.ready(3, 1, Time{});
  ASSERT_NE(members.wake(), Time::never());
  const Epochs::Orders orders = members.tick(members.wake());
  EXPECT_THAT(orders.fenced, ElementsAre(2U));
  ASSERT_EQ(orders.messages.size(), 1U);
  EXPECT_EQ(orders.messages[0].about.epoch, 2U);
}

}  // namespace
}  // namespace corro::launch
