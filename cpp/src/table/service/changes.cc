#include "table/service/changes.h"

#include <algorithm>
#include <utility>

namespace corro::table {

void Changes::add(uint64_t step, std::vector<uint64_t> keys) {
  keys_ += keys.size();
  steps_.push_back({step, std::move(keys)});
  while (steps_.size() > kMostSteps || keys_ > kMostKeys) forget(steps_.front().number);
}

void Changes::forget(uint64_t step) {
  known_from_ = std::max(known_from_, step);
  while (!steps_.empty() && steps_.front().number <= step) {
    keys_ -= steps_.front().keys.size();
    steps_.pop_front();
  }
}

std::optional<std::vector<uint32_t>> Changes::since(uint64_t step,
                                                    std::span<const uint64_t> keys) const {
  if (step < known_from_) return std::nullopt;
  std::vector<bool> changed(keys.size());
  for (const Step& one : steps_) {
    if (one.number <= step) continue;
    size_t at = 0;
    for (const uint64_t key : one.keys) {
      while (at < keys.size() && keys[at] < key) ++at;
      if (at == keys.size()) break;
      if (keys[at] == key) changed[at] = true;
    }
  }
  std::vector<uint32_t> indices;
  for (size_t i = 0; i < keys.size(); ++i)
    if (changed[i]) indices.push_back(static_cast<uint32_t>(i));
  return indices;
}

}  // namespace corro::table
