#include "table/service/split.h"

#include <algorithm>
#include <utility>

namespace corro::table {
namespace {

void add(ServerKeys& server, uint64_t key, size_t row) {
  server.keys.push_back(key);
  server.rows.push_back(static_cast<uint32_t>(row));
}

}  // namespace

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

std::vector<ServerKeys> for_pull(std::span<const uint64_t> keys, const Holders& holders,
                                 const std::vector<bool>& lost) {
  std::vector<ServerKeys> result(lost.size());
  for (size_t row = 0; row < keys.size(); ++row) {
    const auto first = std::ranges::find(holders.of(keys[row]), false,
                                         [&](uint16_t holder) { return lost[holder]; });
    add(result.at(*first), keys[row], row);
  }
  return result;
}

std::vector<ServerKeys> for_push(std::span<const uint64_t> keys, const Holders& holders,
                                 const std::vector<bool>& lost) {
  std::vector<ServerKeys> result(lost.size());
  for (size_t row = 0; row < keys.size(); ++row)
    for (const uint16_t holder : holders.of(keys[row]))
      if (!lost[holder]) add(result[holder], keys[row], row);
  return result;
}

}  // namespace corro::table
