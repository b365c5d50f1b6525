// Which links between hosts are measured at the same time: in a round no host sends twice or
// receives twice, so that links that share nothing do not slow each other.
#pragma once

#include <compare>
#include <cstddef>
#include <set>
#include <vector>

namespace corro::launch {

/// One direction between two hosts.
struct Link {
  size_t from = 0, to = 0;
  friend auto operator<=>(const Link&, const Link&) = default;
};
using Round = std::vector<Link>;

/// Every pair of hosts once, in rounds of disjoint pairs: hosts - 1 rounds, or `hosts` of them with
/// one that rests where that is odd. Source: the circle method of round-robin tournaments. Pure.
[[nodiscard]] std::vector<Round> pair_all(size_t hosts);

/// Every host sends to the one 1, 2, 4, ... places behind it, a round for each distance below
/// `hosts`: about log2(hosts) links for each host. Pure.
[[nodiscard]] std::vector<Round> pair_by_distances(size_t hosts);

/// Links that tell which end of a slow one is slow: the way back, and each end with up to three
/// hosts of `sound`. What is in `measured` is left out. Pure.
[[nodiscard]] std::vector<Link> links_around(const Link& slow, const std::vector<size_t>& sound,
                                             const std::set<Link>& measured);

/// Puts links into as few rounds as one pass finds: no host sends twice or receives twice in one.
/// Pure.
[[nodiscard]] std::vector<Round> rounds_of(const std::vector<Link>& links);

}  // namespace corro::launch
