#include "launch/health.h"

#include <algorithm>
#include <map>
#include <set>

namespace corro::launch {
namespace {

/// The middle one of values that are sorted with the best first; of two, the better.
template <typename T>
T middle(const std::vector<T>& sorted) {
  return sorted.empty() ? T{} : sorted[(sorted.size() - 1) / 2];
}

/// With whom a host has been measured, and with whom it is slow.
struct Partners {
  std::set<size_t> all, slow;
};

std::map<size_t, Partners> partners_of(const std::vector<LinkHealth>& links, const UsualLink& usual,
                                       const std::vector<size_t>& without) {
  std::map<size_t, Partners> partners;
  for (const LinkHealth& one : links) {
    const auto [from, to] = one.link;
    const bool known = std::ranges::count(without, from) + std::ranges::count(without, to) > 0;
    if (!one.measured() || known) continue;
    for (const auto& [host, other] : {std::pair(from, to), std::pair(to, from)}) {
      partners[host].all.insert(other);
      if (is_slow(one, usual)) partners[host].slow.insert(other);
    }
  }
  return partners;
}

/// The share of its partners with whom a host is slow; 0 where that says nothing about the host.
double guilt_of(const Partners& partners) {
  constexpr size_t kWitnesses = 2;
  if (partners.slow.size() < kWitnesses) return 0;
  const double share =
      static_cast<double>(partners.slow.size()) / static_cast<double>(partners.all.size());
  return share > 0.5 ? share : 0;
}

}  // namespace

UsualLink usual_link(const std::vector<LinkHealth>& links) {
  std::map<size_t, UsualLink> best;
  for (const LinkHealth& one : links) {
    if (!one.measured()) continue;
    for (const size_t host : {one.link.from, one.link.to}) {
      const auto [found, first] = best.try_emplace(host, UsualLink{one.round_trip, 0});
      UsualLink& of = found->second;
      of.round_trip = std::min(of.round_trip, one.round_trip);
      of.bytes_per_second = std::max(of.bytes_per_second, one.bytes_per_second);
    }
  }
  std::vector<Duration> trips;
  std::vector<double> rates;
  for (const auto& [host, link] : best) {
    trips.push_back(link.round_trip);
    rates.push_back(link.bytes_per_second);
  }
  std::ranges::sort(trips);
  std::ranges::sort(rates, std::greater());
  return {.round_trip = middle(trips), .bytes_per_second = middle(rates)};
}

bool has_low_bandwidth(const LinkHealth& link, const UsualLink& usual) {
  constexpr double kShare = 0.5;
  constexpr double kMostTold = 2e9;  // Above it one connection tells of processors, not of cables.
  return link.measured() && link.bytes_per_second < kShare * usual.bytes_per_second &&
         link.bytes_per_second < kMostTold;
}

bool has_long_trip(const LinkHealth& link, const UsualLink& usual) {
  constexpr Duration kNoise = std::chrono::microseconds(200);
  return link.measured() && link.round_trip > 3 * usual.round_trip + kNoise;
}

Slow find_slow(const std::vector<LinkHealth>& links) {
  const UsualLink usual = usual_link(links);
  Slow slow;
  // One host after the other: what is explained by a host accuses no other one.
  while (true) {
    const auto partners = partners_of(links, usual, slow.hosts);
    const auto worst = std::ranges::max_element(
        partners, {}, [](const auto& entry) { return guilt_of(entry.second); });
    if (worst == partners.end() || guilt_of(worst->second) == 0) break;
    slow.hosts.push_back(worst->first);
  }
  std::vector<const LinkHealth*> rest;
  for (const LinkHealth& one : links) {
    const auto is_known = [&](size_t host) { return std::ranges::count(slow.hosts, host) > 0; };
    if (is_slow(one, usual) && !is_known(one.link.from) && !is_known(one.link.to))
      rest.push_back(&one);
  }
  std::ranges::sort(rest, {}, [](const LinkHealth* one) { return one->bytes_per_second; });
  for (const LinkHealth* one : rest) slow.links.push_back(one->link);
  return slow;
}

}  // namespace corro::launch
