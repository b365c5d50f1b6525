#include "launch/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace corro::launch {
namespace {

using std::chrono::microseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

/// Links of a kind of network: every pair, or by distances.
std::vector<LinkHealth> network(const std::vector<Round>& rounds, bool both_ways,
                                const std::function<double(const Link&)>& rate) {
  std::vector<LinkHealth> links;
  for (const Round& round : rounds) {
    for (const Link& link : round) {
      links.push_back(
          {.link = link, .round_trip = microseconds(100), .bytes_per_second = rate(link)});
      const Link back{link.to, link.from};
      if (both_ways)
        links.push_back(
            {.link = back, .round_trip = microseconds(100), .bytes_per_second = rate(back)});
    }
  }
  return links;
}
bool touches(const Link& link, size_t host) { return link.from == host || link.to == host; }

TEST(FindSlow, NamesTheHostWhoseLinksAreSlow) {
  for (const size_t hosts : {3UL, 4UL, 5UL, 16UL}) {
    for (size_t bad = 0; bad < hosts; ++bad) {
      const auto links = network(pair_all(hosts), true,
                                 [&](const Link& link) { return touches(link, bad) ? 1e6 : 1e9; });
      EXPECT_THAT(find_slow(links).hosts, ElementsAre(bad)) << hosts;
      EXPECT_THAT(find_slow(links).links, IsEmpty());
      EXPECT_EQ(usual_link(links).bytes_per_second, 1e9);
    }
  }
}

TEST(FindSlow, NamesTheHostAmongManyThatWereNotAllPaired) {
  for (const size_t hosts : {17UL, 64UL, 100UL}) {
    const size_t bad = hosts / 3;
    const auto links = network(pair_by_distances(hosts), false,
                               [&](const Link& link) { return touches(link, bad) ? 3e8 : 1e9; });
    EXPECT_THAT(find_slow(links).hosts, ElementsAre(bad)) << hosts;
    EXPECT_THAT(find_slow(links).links, IsEmpty());
  }
}

TEST(FindSlow, NamesTheLinkIfOnlyThatIsSlow) {
  for (const size_t hosts : {3UL, 4UL, 16UL}) {
    const auto links = network(pair_all(hosts), true, [](const Link& link) {
      return link == Link{0, 2} ? 1e7 : link == Link{2, 0} ? 2e7 : 1e9;
    });
    EXPECT_THAT(find_slow(links).hosts, IsEmpty()) << hosts;
    EXPECT_THAT(find_slow(links).links, ElementsAre(Link{0, 2}, Link{2, 0}));
  }
}

TEST(FindSlow, BlamesNoSoundHostForTwoBadOnes) {
  const auto links = network(pair_all(4), true, [](const Link& link) {
    return touches(link, 1) || touches(link, 3) ? 1e6 : 1e9;
  });
  EXPECT_THAT(find_slow(links).hosts, UnorderedElementsAre(1, 3));
  EXPECT_THAT(find_slow(links).links, IsEmpty());
}

TEST(FindSlow, OfTwoHostsOnlyADirectionCanBeNamed) {
  const auto even = network(pair_all(2), true, [](const Link&) { return 1e6; });
  EXPECT_THAT(find_slow(even).hosts, IsEmpty());
  EXPECT_THAT(find_slow(even).links, IsEmpty());
  const auto lame =
      network(pair_all(2), true, [](const Link& link) { return link.from == 0 ? 1e6 : 1e9; });
  EXPECT_THAT(find_slow(lame).hosts, IsEmpty());
  EXPECT_THAT(find_slow(lame).links, ElementsAre(Link{0, 1}));
}

TEST(FindSlow, ALongRoundTripIsSlowToo) {
  auto links = network(pair_all(5), true, [](const Link&) { return 1e9; });
  for (LinkHealth& one : links)
    if (touches(one.link, 3)) one.round_trip = microseconds(600);
  EXPECT_THAT(find_slow(links).hosts, ElementsAre(3));
  for (LinkHealth& one : links)
    if (touches(one.link, 3)) one.round_trip = microseconds(450);
  EXPECT_THAT(find_slow(links).hosts, IsEmpty()) << "that little is noise";
}

TEST(FindSlow, WhereProcessorsAreTheLimitNobodyIsNamed) {
  const auto links =
      network(pair_all(3), true, [](const Link& link) { return touches(link, 1) ? 2.5e9 : 9e9; });
  EXPECT_THAT(find_slow(links).hosts, IsEmpty());
  EXPECT_THAT(find_slow(links).links, IsEmpty());
}

TEST(FindSlow, SpreadIsNotSlow) {
  const auto links = network(pair_all(6), true, [](const Link& link) {
    return 1e9 * (1 + 0.1 * static_cast<double>((link.from * 7 + link.to * 3) % 9));
  });
  EXPECT_THAT(find_slow(links).hosts, IsEmpty());
  EXPECT_THAT(find_slow(links).links, IsEmpty());
}

TEST(FindSlow, WhatWasNotMeasuredAccusesNobody) {
  auto links =
      network(pair_all(4), true, [](const Link& link) { return touches(link, 2) ? 0 : 1e9; });
  EXPECT_THAT(find_slow(links).hosts, IsEmpty());
  EXPECT_THAT(find_slow(links).links, IsEmpty());
  EXPECT_THAT(find_slow({}).hosts, IsEmpty());
}

}  // namespace
}  // namespace corro::launch
