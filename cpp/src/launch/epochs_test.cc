#include "launch/epochs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "launch/rank_start.h"

namespace corro::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  std::optional<coord::Options> options;
  if (least) options = coord::Options{.least = *least};
  return {job(), new_members(wire::digest_of("job"), 4), options};
}

/// The same, with another place on the second host.
Epochs growing() {
  JobFacts facts = job();
  facts.hosts[1].spare = 1;
  return {facts, new_members(wire::digest_of("job"), 5), coord::Options{.least = 2, .most = 5}};
}

/// Rank 1 is killed, and the others are ready.
Epochs::Orders lose_rank_1(Epochs& members) {
  (void)members.end(1, false, "rank 1 was killed", false, Time{});
  for (const size_t place : {0U, 2U}) (void)members.ready(place, 1, 0, -1, Time{});
  return members.ready(3, 1, 0, -1, Time{});
}

TEST(Epochs, ARecordIsAllThatAnotherCoordinatorNeedsToKnowOfTheMembers) {
  Epochs first = growing();
  (void)first.tick(Time{});
  (void)first.ready(4, 0, 0, -1, Time{});
  for (const size_t place : {0U, 1U, 2U, 3U}) (void)first.ready(place, 1, 9, -1, Time{});
  (void)first.ready(4, 1, 0, -1, Time{});
  (void)first.end(1, false, "rank 1 was killed", false, Time{});
  for (const size_t place : {0U, 2U, 3U, 4U}) (void)first.ready(place, 2, 12, -1, Time{});
  ASSERT_EQ(first.epoch(), 2U);
  const JobRecord record = first.record();
  EXPECT_EQ(record.steps, 12U);
  EXPECT_EQ(record.resets, 2);

  Epochs second = growing();
  second.resume(record, Time{});
  EXPECT_EQ(second.epoch(), 2U);
  EXPECT_EQ(second.ranks(), first.ranks());
  EXPECT_EQ(second.record(), record);
  for (const size_t place : first.ranks()) {
    EXPECT_EQ(second.subject(place), first.subject(place));
    EXPECT_EQ(second.seat(place).host, first.seat(place).host);
    EXPECT_EQ(second.seat(place).local_rank, first.seat(place).local_rank);
  }
  EXPECT_TRUE(second.joins(1)) << "nobody is there";
  EXPECT_EQ(second.go_on(0, Time{}).started, std::vector<size_t>{1}) << "so its place is used";
}

/// All processes that there are say that they have left their engines for this epoch.
Epochs::Orders all_ready(Epochs& members, uint32_t epoch, Time now) {
  Epochs::Orders last;
  for (size_t place = 0; place < members.places(); ++place) {
    Epochs::Orders orders = members.ready(place, epoch, members.joins(place) ? 0 : 9, -1, now);
    if (!orders.messages.empty()) last = std::move(orders);
  }
  return last;
}

TEST(Epochs, SixtyFourThatJoinAtOnceAreMembersAfterTwoEpochsAtMost) {
  JobFacts facts;
  facts.ranks = 1;
  facts.hosts = {{.name = "node1", .ranks = 1, .spare = 64, .address = ""}};
  Epochs members{facts, new_members(wire::digest_of("job"), 65),
                 coord::Options{.least = 1, .most = 65}};
  Time now{};
  EXPECT_EQ(members.tick(now).started.size(), 64U);
  for (size_t place = 1; place < 65; ++place) {
    now = now + std::chrono::milliseconds(5);  // One after another has been imported.
    const Epochs::Orders orders = members.ready(place, 0, 0, -1, now);
    if (!orders.messages.empty()) (void)all_ready(members, orders.messages[0].about.epoch, now);
  }
  for (int i = 0; i < 10 && members.size() < 65; ++i) {
    now = std::max(now, members.wake());
    const Epochs::Orders orders = members.tick(now);
    if (!orders.messages.empty()) (void)all_ready(members, orders.messages[0].about.epoch, now);
  }
  EXPECT_EQ(members.size(), 65U);
  EXPECT_LE(members.epoch(), 2U);
}

TEST(Epochs, TellsAllAgentsThatAnEpochComesAndThatItHasBegun) {
  Epochs members = epochs(2);
  const Epochs::Orders prepare = members.end(1, false, "rank 1 was killed", false, Time{});
  ASSERT_EQ(prepare.messages.size(), 1U);
  EXPECT_EQ(prepare.messages[0].about, (agent::Subject{.job = wire::digest_of("job"), .epoch = 1}));
  EXPECT_EQ(std::get<agent::Prepare>(prepare.messages[0].body).why, "rank 1 was killed");
  ASSERT_EQ(prepare.news.size(), 1U);
  EXPECT_EQ(prepare.news[0].kind, Epochs::News::Kind::kComes);
  for (const size_t place : {0U, 2U})
    EXPECT_TRUE(members.ready(place, 1, 0, -1, Time{}).messages.empty());
  const Epochs::Orders commit = members.ready(3, 1, 0, -1, Time{});
  ASSERT_EQ(commit.messages.size(), 1U);
  ASSERT_EQ(commit.news.size(), 1U);
  EXPECT_EQ(commit.news[0].kind, Epochs::News::Kind::kBegun);
  EXPECT_EQ(commit.news[0].why, "3 of 4 ranks go on");
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
  (void)members.end(1, false, "rank 1 was killed", false, Time{});
  EXPECT_FALSE(members.left(1)) << "not before it has begun";
  for (const size_t place : {0U, 2U, 3U}) (void)members.ready(place, 1, 0, -1, Time{});
  EXPECT_TRUE(members.left(1));
  EXPECT_FALSE(members.left(2));
}

TEST(Epochs, WithTooFewTheJobStopsAndNobodyHasLeft) {
  Epochs members = epochs(3);
  (void)members.end(1, false, "rank 1 was killed", false, Time{});
  const Epochs::Orders orders = members.end(0, false, "rank 0 was killed", false, Time{});
  EXPECT_THAT(orders.stop, HasSubstr("2 ranks are left, at least 3 are needed"));
  EXPECT_FALSE(members.left(1)) << "it belongs to what has ended the job";
}

TEST(Epochs, EveryRankIsNeededWhereNobodySaysOtherwise) {
  Epochs members = epochs(std::nullopt);
  EXPECT_FALSE(members.elastic());
  EXPECT_TRUE(epochs(1).elastic());
  EXPECT_NE(members.end(1, false, "rank 1 was killed", false, Time{}).stop, "");
}

/// Whom the orders end.
std::vector<size_t> fenced_by(const Epochs& members, const Epochs::Orders& orders) {
  std::vector<size_t> places;
  for (const agent::Message& message : orders.fenced)
    places.push_back(members.place_of(message.about).value());
  return places;
}

TEST(Epochs, SaysWhoIsFencedAndWhy) {
  Epochs members = epochs(2);
  const auto frozen = members.hang(2, "rank 2 does not answer", Time{});
  ASSERT_FALSE(frozen.news.empty());
  EXPECT_EQ(frozen.news[0].kind, Epochs::News::Kind::kFenced);
  EXPECT_EQ(frozen.news[0].place, 2U);
  EXPECT_EQ(frozen.news[0].why, "rank 2 does not answer");
}

TEST(Epochs, IsDoneOnceWhoeverWasNotLostHasDoneItsWork) {
  Epochs members = epochs(2);
  (void)members.end(1, false, "rank 1 was killed", false, Time{});
  for (const size_t place : {0U, 2U}) (void)members.end(place, true, "", false, Time{});
  EXPECT_FALSE(members.done());
  (void)members.end(3, true, "", false, Time{});
  EXPECT_TRUE(members.done());
  Epochs last = epochs(1);
  for (const size_t place : {0U, 2U, 3U}) (void)last.end(place, true, "", false, Time{});
  (void)last.end(1, false, "rank 1 was killed", false, Time{});
  EXPECT_FALSE(last.done()) << "its work is not";
}

/// All orders of so many looks that see these places stopped.
std::vector<size_t> fenced_after(Epochs& members, int looks, const std::set<size_t>& stopped) {
  std::vector<size_t> fenced;
  for (int look = 0; look < looks; ++look) {
    for (size_t place = 0; place < 4; ++place) {
      const Epochs::Orders orders = members.see(place, stopped.contains(place), Time{});
      for (const size_t one : fenced_by(members, orders)) fenced.push_back(one);
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
  (void)members.end(1, false, "rank 1 was killed", false, Time{});
  (void)members.ready(0, 1, 0, -1, Time{});
  (void)members.ready(3, 1, 0, -1, Time{});
  ASSERT_NE(members.wake(), Time::never());
  const Epochs::Orders orders = members.tick(members.wake());
  EXPECT_THAT(fenced_by(members, orders), ElementsAre(2U));
  ASSERT_EQ(orders.messages.size(), 1U);
  EXPECT_EQ(orders.messages[0].about.epoch, 2U);
}

TEST(Epochs, AProcessIsStartedInAFreePlaceAndJoins) {
  Epochs members = growing();
  EXPECT_TRUE(members.left(4)) << "nobody was there yet";
  EXPECT_THAT(members.tick(Time{}).started, ElementsAre(4U));
  EXPECT_TRUE(members.joins(4));
  EXPECT_EQ(members.subject(4).epoch, agent::kNoEpochYet);
  const Epochs::Orders plan = members.ready(4, 0, 0, -1, Time{});
  ASSERT_EQ(plan.messages.size(), 1U);
  EXPECT_FALSE(std::get<agent::Prepare>(plan.messages[0].body).at_once);
  for (const size_t place : {0U, 1U, 2U, 4U}) (void)members.ready(place, 1, 0, -1, Time{});
  const Epochs::Orders commit = members.ready(3, 1, 0, -1, Time{});
  ASSERT_EQ(commit.news.size(), 1U);
  EXPECT_EQ(commit.news[0].why, "5 ranks go on, 1 of them new");
  const auto& list = std::get<agent::Members>(commit.messages[0].body).members;
  ASSERT_EQ(list.size(), 5U);
  EXPECT_EQ(list[4], (agent::Member{4, members.subject(4).member, 1, 1}));
  EXPECT_FALSE(members.joins(4));
  EXPECT_FALSE(members.left(4));
}

TEST(Epochs, WhatIsSaidOfAProcessIsNotSaidOfTheNextOneInItsPlace) {
  Epochs members = growing();
  const agent::Subject before = members.subject(1);
  EXPECT_THAT(members.end(1, false, "rank 1 was killed", false, Time{}).started,
              ElementsAre(1U, 4U));
  EXPECT_EQ(members.place_of(before), std::nullopt);
  EXPECT_EQ(members.place_of(members.subject(1)), 1U);
  EXPECT_TRUE(members.left(1));
}

TEST(Epochs, AHostThatComesLaterHasSlots) {
  Epochs members = epochs(2);
  EXPECT_THAT(members.tick(Time{}).started, IsEmpty());
  JobFacts facts = job();
  facts.most = 5;
  Epochs growing{facts, new_members(wire::digest_of("job"), 5),
                 coord::Options{.least = 2, .most = 5}};
  EXPECT_THAT(growing.tick(Time{}).started, IsEmpty()) << "no slot is free";
  EXPECT_THAT(growing.offer(3, "node4", 2, Time{}).started, ElementsAre(4U)) << "2 was never there";
  EXPECT_EQ(growing.seat(4).host, 3U);
  EXPECT_EQ(growing.seat(4).local_rank, 0);
  (void)growing.ready(4, 0, 0, -1, Time{});
  for (const size_t place : {0U, 1U, 2U, 4U}) (void)growing.ready(place, 1, 0, -1, Time{});
  const Epochs::Orders commit = growing.ready(3, 1, 0, -1, Time{});
  ASSERT_EQ(commit.messages.size(), 1U);
  const auto& list = std::get<agent::Members>(commit.messages[0].body);
  EXPECT_EQ(list.members[4].host, 3);
  EXPECT_THAT(list.hosts, ElementsAre("node1", "node2", "node4", "node4"));
}

TEST(Epochs, AHostWithFewerSlotsHasItsRanksLeave) {
  Epochs members = growing();
  const Epochs::Orders orders = members.offer(1, "node2", 1, Time{});
  ASSERT_EQ(orders.messages.size(), 1U);
  EXPECT_FALSE(std::get<agent::Prepare>(orders.messages[0].body).at_once);
}

TEST(Epochs, AJobWhoseRanksAreAskedToEndHasALastEpoch) {
  Epochs members = epochs(4);
  const Epochs::Orders plan = members.leave(2, /*is_all=*/false, Time{});
  ASSERT_EQ(plan.messages.size(), 1U);
  EXPECT_EQ(std::get<agent::Prepare>(plan.messages[0].body).why, "rank 2 was asked to end");
  EXPECT_FALSE(std::get<agent::Prepare>(plan.messages[0].body).at_once);
  for (const size_t place : {0U, 1U, 2U}) (void)members.ready(place, 1, 0, -1, Time{});
  EXPECT_FALSE(members.last());
  const Epochs::Orders last = members.ready(3, 1, 0, -1, Time{});
  EXPECT_TRUE(members.last());
  ASSERT_EQ(last.messages.size(), 1U);
  EXPECT_TRUE(std::get<agent::Members>(last.messages[0].body).last);
  EXPECT_EQ(last.news[0].why, "4 ranks save what they have, and end");
}

TEST(Epochs, NobodyIsStartedInAJobThatIsToEnd) {
  Epochs members = growing();
  members.close();
  EXPECT_TRUE(members.tick(Time{}).started.empty());
}

TEST(Epochs, NothingIsStartedOnAHostThatIsLost) {
  Epochs members = growing();
  EXPECT_THAT(members.lose_host(1, Time{}).messages, IsEmpty());
  EXPECT_THAT(members.end(3, false, "node2 was lost", true, Time{}).started, IsEmpty());
}

}  // namespace
}  // namespace corro::launch
