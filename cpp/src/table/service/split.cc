#include "table/service/split.h"

#include <algorithm>
#include <utility>

namespace corro::table {
namespace {

/// Virtual shards of a table, which servers share: the unit of what moves between them.
constexpr size_t kShards = 4096;

/// The finalizer of MurmurHash3 (Appleby): every bit of the key changes half of the result's.
constexpr uint64_t mix(uint64_t key) {
  key = (key ^ (key >> 33U)) * 0xff51afd7ed558ccdULL;
  key = (key ^ (key >> 33U)) * 0xc4ceb9fe1a85ec53ULL;
  return key ^ (key >> 33U);
}

}  // namespace

size_t server_of(uint64_t key, size_t servers) {
  const uint64_t shard = mix(key) >> 52U;
  static_assert(kShards == 1U << 12U);
  return shard * servers / kShards;
}

DistinctKeys distinct(std::span<const uint64_t> ids) {
  std::vector<std::pair<uint64_t, uint32_t>> sorted(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) sorted[i] = {ids[i], static_cast<uint32_t>(i)};
  std::ranges::sort(sorted);
  DistinctKeys result;
  result.row_of.resize(ids.size());
  for (const auto& [key, place] : sorted) {
    if (result.keys.empty() || result.keys.back() != key) result.keys.push_back(key);
    result.row_of[place] = static_cast<uint32_t>(result.keys.size() - 1);
  }
  return result;
}

std::vector<float> add_up(const DistinctKeys& keys, std::span<const float> gradients, size_t dim) {
  std::vector<float> sums(keys.keys.size() * dim);
  std::vector<bool> seen(keys.keys.size());
  for (size_t i = 0; i < keys.row_of.size(); ++i) {
    const size_t row = keys.row_of[i];
    const float* from = gradients.data() + i * dim;
    float* into = sums.data() + row * dim;
    if (seen[row]) {
      for (size_t j = 0; j < dim; ++j) into[j] += from[j];
    } else {
      std::copy_n(from, dim, into);  // Not 0 + x: that would make a 0 of -0.
      seen[row] = true;
    }
  }
  return sums;
}

std::vector<ServerKeys> by_server(std::span<const uint64_t> keys, size_t servers) {
  std::vector<ServerKeys> result(servers);
  for (size_t row = 0; row < keys.size(); ++row) {
    ServerKeys& server = result[server_of(keys[row], servers)];
    server.keys.push_back(keys[row]);
    server.rows.push_back(static_cast<uint32_t>(row));
  }
  return result;
}

}  // namespace corro::table
