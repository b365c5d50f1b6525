#include "runtime/liveness.h"

#include <algorithm>
#include <map>

namespace corro::runtime {

Liveness::Liveness(int32_t rank, const std::vector<std::string>& hosts)
    : rank_(rank), peers_(hosts.size()) {
  std::map<std::string, int32_t> latest;  // By host: its last rank so far.
  for (int32_t r = 0; r < static_cast<int32_t>(hosts.size()); ++r) {
    const auto [known, first] = latest.try_emplace(hosts[static_cast<size_t>(r)], r);
    if (first) {
      at(r).host = r;
      hosts_.push_back(r);
      continue;
    }
    at(r).host = at(known->second).host;
    at(known->second).next = r;
    known->second = r;
  }
}

bool Liveness::knows(int32_t rank) const {
  return rank >= 0 && rank < static_cast<int32_t>(peers_.size()) && rank != rank_;
}

/// The lowest living rank of a host, or -1.
int32_t Liveness::owner_of(int32_t host) const {
  int32_t rank = host;
  while (rank >= 0 && at(rank).gone) rank = at(rank).next;
  return rank;
}

/// The owner of the next (1) or the previous (-1) host that has one, or -1: there is none left.
int32_t Liveness::neighbour(int step) const {
  const auto size = static_cast<int>(hosts_.size());
  const auto own = std::find(hosts_.begin(), hosts_.end(), at(rank_).host) - hosts_.begin();
  for (int i = 1; i < size; ++i) {
    const int index = (static_cast<int>(own) + step * i + size) % size;
    const int32_t owner = owner_of(hosts_[static_cast<size_t>(index)]);
    if (owner >= 0) return owner;
  }
  return -1;
}

/// Whom this rank has to be connected to.
std::vector<int32_t> Liveness::wanted() const {
  if (hosts_.size() == 1) return {};  // Pidfds say all.
  const int32_t owner = owner_of(at(rank_).host);
  if (owner != rank_) return {owner};
  std::vector<int32_t> ranks;
  for (const int step : {1, -1}) {
    const int32_t rank = neighbour(step);
    if (rank >= 0 && (ranks.empty() || ranks.front() != rank)) ranks.push_back(rank);
  }
  return ranks;
}

void Liveness::dial_wanted(Actions& actions, bool gently) {
  const std::vector<int32_t> ranks = wanted();
  for (int32_t r = 0; r < static_cast<int32_t>(peers_.size()); ++r) {
    if (!at(r).dialing || std::find(ranks.begin(), ranks.end(), r) != ranks.end()) continue;
    at(r).dialing = false;
    actions.push_back({.kind = LivenessAction::Kind::kForget, .rank = r});
  }
  for (const int32_t r : ranks) {
    if (at(r).link != Link::kNone || at(r).dialing) continue;
    at(r).dialing = true;
    actions.push_back(
        {.kind = LivenessAction::Kind::kDial, .rank = r, .gently = gently && r > rank_});
  }
}

Liveness::Actions Liveness::start() {
  Actions actions;
  dial_wanted(actions, /*gently=*/true);
  return actions;
}

bool Liveness::keeps(int32_t rank, bool dialed_here) const {
  if (!knows(rank) || is_lost(at(rank).host)) return false;
  const Link higher = rank_ > rank ? Link::kDialedHere : Link::kDialedThere;
  const Link made = dialed_here ? Link::kDialedHere : Link::kDialedThere;
  // Of the lower rank's own two, the later one: whoever dials again has given the earlier one up.
  return made == higher || at(rank).link != higher;
}

Liveness::Actions Liveness::linked(int32_t rank, bool dialed_here) {
  Actions actions;
  if (!keeps(rank, dialed_here)) return actions;
  at(rank).link = dialed_here ? Link::kDialedHere : Link::kDialedThere;
  at(rank).dialing = false;
  for (const int32_t host : hosts_) {
    if (!is_lost(host)) continue;
    actions.push_back({.kind = LivenessAction::Kind::kTell,
                       .rank = rank,
                       .host = host,
                       .witness = at(host).witness});
  }
  return actions;
}

Liveness::Actions Liveness::closed(int32_t rank) {
  Actions actions;
  if (!knows(rank)) return actions;
  at(rank).link = Link::kNone;
  dial_wanted(actions);
  return actions;
}

Liveness::Actions Liveness::ended(int32_t rank) {
  Actions actions;
  if (!knows(rank) || at(rank).gone) return actions;
  at(rank).gone = true;
  dial_wanted(actions);
  return actions;
}

Liveness::Actions Liveness::unreachable(int32_t rank) {
  if (!knows(rank)) return {};
  if (is_local(rank)) return closed(rank);  // No kernel loses itself.
  Actions actions;
  lose(at(rank).host, rank_, /*heard_from=*/-1, actions);
  return actions;
}

Liveness::Actions Liveness::told(int32_t from, int32_t host, int32_t witness) {
  Actions actions;
  // Of this host nobody knows more than its own kernel.
  if (knows(from) && knows(host) && at(host).host == host && !is_local(host) && witness >= 0)
    lose(host, witness, from, actions);
  return actions;
}

void Liveness::lose(int32_t host, int32_t witness, int32_t heard_from, Actions& actions) {
  if (is_lost(host)) return;
  at(host).witness = witness;
  for (int32_t r = host; r >= 0; r = at(r).next) {
    Peer& peer = at(r);
    if (peer.link != Link::kNone || peer.dialing)
      actions.push_back({.kind = LivenessAction::Kind::kForget, .rank = r});
    peer.link = Link::kNone;
    peer.dialing = false;
    peer.gone = true;
    actions.push_back({.kind = LivenessAction::Kind::kLose, .rank = r, .witness = witness});
  }
  for (int32_t r = 0; r < static_cast<int32_t>(peers_.size()); ++r) {
    if (at(r).link == Link::kNone || r == heard_from) continue;
    actions.push_back(
        {.kind = LivenessAction::Kind::kTell, .rank = r, .host = host, .witness = witness});
  }
  dial_wanted(actions);
}

}  // namespace corro::runtime
