#include "table/service/holders.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <ranges>
#include <utility>

namespace corro::table {
namespace {

/// The finalizer of MurmurHash3 (Appleby): each bit of the input changes half of the result's.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33U)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33U)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33U);
}

using Score = std::pair<uint64_t, uint16_t>;

/// The greatest is the best.
Score score_of(size_t server, size_t shard) {
  return {mix(mix(server + 1) ^ shard), static_cast<uint16_t>(server)};
}

bool contains(std::span<const uint16_t> servers, uint16_t server) {
  return std::ranges::find(servers, server) != servers.end();
}

}  // namespace

size_t shard_of(uint64_t key, size_t shards) {
  const auto bits = static_cast<unsigned>(std::countr_zero(shards));
  return bits == 0 ? 0 : mix(key) >> (64U - bits);
}

Holders::Holders(size_t servers, size_t copies, size_t shards)
    : copies_(copies), by_shard_(shards) {
  const Absent none{std::vector<bool>(servers), std::vector<bool>(servers)};
  for (size_t server = 0; server < servers; ++server) shards_[static_cast<uint16_t>(server)];
  for (size_t shard = 0; shard < shards; ++shard)
    for (const uint16_t server : owners_of(shard, none)) shards_[server].set(shard);
  index();
}

void Holders::index() {
  for (auto& holders : by_shard_) holders.clear();
  for (const auto& [server, held] : shards_)
    for (size_t shard = 0; shard < by_shard_.size(); ++shard)
      if (held.test(shard)) by_shard_[shard].push_back(server);
  for (size_t shard = 0; shard < by_shard_.size(); ++shard)
    std::ranges::sort(by_shard_[shard], std::greater(),
                      [shard](uint16_t server) { return score_of(server, shard); });
}

std::vector<uint16_t> Holders::owners_of(size_t shard, const Absent& absent) const {
  std::vector<Score> scores;
  for (size_t server = 0; server < absent.lost.size(); ++server)
    if (absent.owns(server)) scores.push_back(score_of(server, shard));
  const size_t count = std::min(copies_, scores.size());
  std::ranges::partial_sort(scores, scores.begin() + static_cast<ptrdiff_t>(count), std::greater());
  std::vector<uint16_t> owners(count);
  std::ranges::transform(scores | std::views::take(count), owners.begin(), &Score::second);
  return owners;
}

std::optional<size_t> Holders::lost_shard(const std::vector<bool>& lost) const {
  for (size_t shard = 0; shard < by_shard_.size(); ++shard) {
    const auto is_lost = [&](uint16_t server) { return lost[server]; };
    if (std::ranges::all_of(by_shard_[shard], is_lost)) return shard;
  }
  return std::nullopt;
}

size_t Holders::least_copies(const std::vector<bool>& lost) const {
  size_t least = lost.size();
  for (const auto& holders : by_shard_) {
    const auto left = std::ranges::count_if(holders, [&](uint16_t one) { return !lost[one]; });
    least = std::min(least, static_cast<size_t>(left));
  }
  return least;
}

std::optional<uint16_t> Holders::lacking(size_t shard, const Absent& absent) const {
  for (const uint16_t owner : owners_of(shard, absent))
    if (!contains(by_shard_[shard], owner)) return owner;
  return std::nullopt;
}

std::optional<uint16_t> Holders::source_of(size_t shard, const std::vector<bool>& lost) const {
  for (const uint16_t holder : by_shard_[shard])
    if (!lost[holder]) return holder;
  return std::nullopt;
}

std::optional<Move> Holders::next_move(const Absent& absent, size_t most) const {
  const std::vector<bool>& lost = absent.lost;
  size_t owning = 0;
  for (size_t server = 0; server < lost.size(); ++server) owning += absent.owns(server) ? 1 : 0;
  const size_t wanted = std::min(copies_, owning);
  for (const bool urgent : {true, false}) {
    std::optional<Move> move;
    for (size_t shard = 0; shard < by_shard_.size(); ++shard) {
      const auto is_left = [&](uint16_t one) { return !lost[one]; };
      const auto copies = static_cast<size_t>(std::ranges::count_if(by_shard_[shard], is_left));
      if ((copies < wanted) != urgent) continue;
      const auto source = source_of(shard, lost);
      const auto target = lacking(shard, absent);
      if (!source || !target) continue;
      if (!move) move = Move{.source = *source, .target = *target, .shards = {}};
      if (move->source == *source && move->target == *target) move->shards.set(shard);
      if (move->shards.count() == most) break;
    }
    if (move) return move;
  }
  return std::nullopt;
}

Holders Holders::after(const Move& move, const Absent& absent) const {
  Holders next = *this;
  ++next.version_;
  next.shards_[move.target] |= move.shards;
  std::erase_if(next.shards_, [&](const auto& one) { return absent.lost[one.first]; });
  for (size_t shard = 0; shard < by_shard_.size(); ++shard) {
    if (!move.shards.test(shard)) continue;
    const auto owners = owners_of(shard, absent);
    const auto holds = [&](uint16_t owner) {
      const auto found = next.shards_.find(owner);
      return found != next.shards_.end() && found->second.test(shard);
    };
    if (owners.empty() || !std::ranges::all_of(owners, holds)) continue;
    for (auto& [server, held] : next.shards_)
      if (!contains(owners, server)) held.reset(shard);
  }
  next.index();
  return next;
}

std::optional<Holders> Holders::without_leaving(const Absent& absent) const {
  const auto leaves = [&](const auto& one) { return absent.leaving[one.first]; };
  if (std::ranges::none_of(shards_, leaves) || owners_of(0, absent).empty()) return std::nullopt;
  Holders next = *this;
  ++next.version_;
  std::erase_if(next.shards_,
                [&](const auto& one) { return leaves(one) || absent.lost[one.first]; });
  next.index();
  return next;
}

void Holders::become(uint64_t version, std::map<uint16_t, ShardSet> shards) {
  version_ = version;
  shards_ = std::move(shards);
  index();
}

}  // namespace corro::table
