#include "launch/pairings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

namespace corro::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// No host is in two pairs of the round.
bool is_disjoint(const Round& round) {
  std::set<size_t> hosts;
  for (const Link& link : round)
    if (!hosts.insert(link.from).second || !hosts.insert(link.to).second) return false;
  return true;
}

/// No host sends twice or receives twice in the round.
bool shares_no_end(const Round& round) {
  std::set<size_t> from;
  std::set<size_t> to;
  for (const Link& link : round)
    if (!from.insert(link.from).second || !to.insert(link.to).second) return false;
  return true;
}

TEST(PairAll, MeetsEveryPairOnceInDisjointRounds) {
  for (size_t hosts = 2; hosts <= 33; ++hosts) {
    const auto rounds = pair_all(hosts);
    EXPECT_EQ(rounds.size(), hosts % 2 == 0 ? hosts - 1 : hosts);
    std::set<std::pair<size_t, size_t>> met;
    for (const Round& round : rounds) {
      EXPECT_TRUE(is_disjoint(round)) << hosts;
      EXPECT_EQ(round.size(), hosts / 2);
      for (const Link& link : round) {
        EXPECT_LT(std::max(link.from, link.to), hosts);
        EXPECT_TRUE(met.insert(std::minmax({link.from, link.to})).second) << hosts;
      }
    }
    EXPECT_EQ(met.size(), hosts * (hosts - 1) / 2);
  }
  EXPECT_THAT(pair_all(0), IsEmpty());
  EXPECT_THAT(pair_all(1), IsEmpty());
}

TEST(PairByDistances, LetsEveryHostSendOnceAndReceiveOnceInARound) {
  for (size_t hosts = 2; hosts <= 130; ++hosts) {
    const auto rounds = pair_by_distances(hosts);
    EXPECT_EQ(rounds.size(), static_cast<size_t>(std::bit_width(hosts - 1))) << hosts;
    std::set<Link> all;
    for (const Round& round : rounds) {
      EXPECT_EQ(round.size(), hosts);
      EXPECT_TRUE(shares_no_end(round));
      for (const Link& link : round) {
        EXPECT_NE(link.from, link.to);
        EXPECT_TRUE(all.insert(link).second) << "once each";
      }
    }
  }
  EXPECT_THAT(pair_by_distances(1), IsEmpty());
}

TEST(LinksAround, AskOthersAboutBothEnds) {
  EXPECT_THAT(links_around({2, 5}, {0, 2, 5, 7}, {}),
              ElementsAre(Link{5, 2}, Link{2, 0}, Link{0, 5}, Link{2, 7}, Link{7, 5}));
  EXPECT_THAT(links_around({2, 5}, {0, 7}, {{5, 2}, {2, 0}, {7, 5}}),
              ElementsAre(Link{0, 5}, Link{2, 7}));
  EXPECT_EQ(links_around({2, 5}, {0, 1, 3, 4, 6, 7}, {}).size(), 7U) << "three hosts are enough";
}

TEST(RoundsOf, KeepEveryLinkAndShareNoEnd) {
  std::vector<Link> links;
  for (size_t from = 0; from < 6; ++from)
    for (size_t to = 0; to < 6; ++to)
      if (from != to) links.push_back({from, to});
  const auto rounds = rounds_of(links);
  std::multiset<Link> kept;
  for (const Round& round : rounds) {
    EXPECT_TRUE(shares_no_end(round));
    kept.insert(round.begin(), round.end());
  }
  EXPECT_EQ(kept, std::multiset<Link>(links.begin(), links.end()));
  EXPECT_LE(rounds.size(), 10U);
  EXPECT_THAT(rounds_of({}), IsEmpty());
}

}  // namespace
}  // namespace corro::launch
