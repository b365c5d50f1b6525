#include "launch/pairings.h"

#include <algorithm>

namespace corro::launch {

std::vector<Round> pair_all(size_t hosts) {
  if (hosts < 2) return {};
  // The last seat stays; the others move on by one place after each round. Opposite seats meet.
  const size_t seats = hosts + hosts % 2;
  const size_t circle = seats - 1;
  std::vector<Round> rounds(circle);
  for (size_t r = 0; r < circle; ++r) {
    for (size_t i = 0; i < seats / 2; ++i) {
      const size_t one = i == 0 ? circle : (r + i) % circle;
      const size_t other = (r + circle - i) % circle;
      if (one < hosts && other < hosts) rounds[r].push_back(Link{one, other});
    }
  }
  return rounds;
}

std::vector<Round> pair_by_distances(size_t hosts) {
  std::vector<Round> rounds;
  for (size_t distance = 1; distance < hosts; distance *= 2) {
    Round& round = rounds.emplace_back();
    for (size_t from = 0; from < hosts; ++from) round.push_back({from, (from + distance) % hosts});
  }
  return rounds;
}

std::vector<Link> links_around(const Link& slow, const std::vector<size_t>& sound,
                               const std::set<Link>& measured) {
  constexpr size_t kWitnesses = 3;
  std::vector<Link> links = {{slow.to, slow.from}};
  size_t witnesses = 0;
  for (const size_t host : sound) {
    if (host == slow.from || host == slow.to) continue;
    if (++witnesses > kWitnesses) break;
    links.push_back({slow.from, host});
    links.push_back({host, slow.to});
  }
  std::erase_if(links, [&](const Link& link) { return measured.contains(link); });
  return links;
}

std::vector<Round> rounds_of(const std::vector<Link>& links) {
  std::vector<Round> rounds;
  for (const Link& link : links) {
    const auto has_room = [&](const Round& round) {
      return std::ranges::none_of(
          round, [&](const Link& other) { return other.from == link.from || other.to == link.to; });
    };
    const auto round = std::ranges::find_if(rounds, has_room);
    (round == rounds.end() ? rounds.emplace_back() : *round).push_back(link);
  }
  return rounds;
}

}  // namespace corro::launch
