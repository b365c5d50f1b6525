#include "collective/schedule/topology.h"

#include <map>

namespace corro::collective {

Topology::Topology(std::span<const int32_t> hosts) {
  std::map<int32_t, int32_t> numbers;
  for (const int32_t name : hosts) {
    const auto rank = static_cast<int32_t>(host_of_.size());
    const auto [known, first] = numbers.try_emplace(name, this->hosts());
    if (first) ranks_.emplace_back();
    std::vector<int32_t>& neighbours = ranks_[static_cast<size_t>(known->second)];
    host_of_.push_back(known->second);
    place_of_.push_back(static_cast<int32_t>(neighbours.size()));
    neighbours.push_back(rank);
  }
}

}  // namespace corro::collective
