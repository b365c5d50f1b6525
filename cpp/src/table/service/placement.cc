#include "table/service/placement.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace corro::table {
namespace {

constexpr int kShardBits = std::countr_zero(kShards);

/// The finalizer of MurmurHash3 (Appleby): each bit of the input changes half of the result's.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33U)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33U)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33U);
}

}  // namespace

Placement::Placement(size_t servers, size_t copies) : copies_(std::min(servers, copies)) {
  std::vector<std::pair<uint64_t, uint16_t>> scores(servers);
  for (uint64_t shard = 0; shard < kShards; ++shard) {
    for (size_t server = 0; server < servers; ++server)
      scores[server] = {mix(mix(server + 1) ^ shard), static_cast<uint16_t>(server)};
    std::ranges::partial_sort(scores, scores.begin() + static_cast<ptrdiff_t>(copies_),
                              std::greater());
    for (size_t i = 0; i < copies_; ++i) owners_.push_back(scores[i].second);
  }
}

std::span<const uint16_t> Placement::owners(uint64_t key) const {
  return owners_of_shard(mix(key) >> (64 - kShardBits));
}

std::optional<size_t> Placement::lost_shard(const std::vector<bool>& lost) const {
  for (size_t shard = 0; shard < kShards; ++shard) {
    const auto is_lost = [&](uint16_t server) { return lost[server]; };
    if (std::ranges::all_of(owners_of_shard(shard), is_lost)) return shard;
  }
  return std::nullopt;
}

}  // namespace corro::table
