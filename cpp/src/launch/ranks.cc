#include "launch/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace corro::launch {

int usable_cores(const agent::MachineFacts& facts) {
  int cores = std::max(1, facts.cores);
  if (facts.cpu_quota > 0) cores = std::min(cores, static_cast<int>(std::floor(facts.cpu_quota)));
  return std::max(1, cores);
}

RankChoice choose_ranks(const agent::MachineFacts& facts) {
  if (facts.gpus > 0) {
    return {.ranks = facts.gpus, .reason = fmt::format("one per GPU ({})", facts.gpus)};
  }
  constexpr int kOnePerCoreUpTo = 8;
  constexpr int kCoresPerRank = 4;
  constexpr uint64_t kBytesPerRank = 1ULL << 30U;
  const int cores = usable_cores(facts);
  const int wanted =
      cores <= kOnePerCoreUpTo ? cores : std::max(kOnePerCoreUpTo, cores / kCoresPerRank);
  const auto fitting = static_cast<int>(
      std::min<uint64_t>(facts.memory_bytes / kBytesPerRank, static_cast<uint64_t>(wanted)));
  if (facts.memory_bytes > 0 && fitting < wanted) {
    return {.ranks = std::max(1, fitting), .reason = "one per GiB of free memory"};
  }
  if (wanted == cores)
    return {.ranks = wanted, .reason = fmt::format("one per usable core ({})", cores)};
  return {.ranks = wanted,
          .reason = fmt::format("{} usable cores, {} for each rank", cores, cores / wanted)};
}

}  // namespace corro::launch
