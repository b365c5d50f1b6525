// Which device is which rank, on clusters whose links are not all alike.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/search/planner.h"

namespace corro::plan {

/// A device for each rank of the candidate; empty: rank i on device i of its pools, which is as
/// good where links are alike, and all that is known of more than kMostPlaced devices.
inline constexpr uint32_t kMostPlaced = 1024;

/// Compares, by what a step sends over the slowest link of each axis, the order of devices as they
/// are numbered, the one that plan/solve finds and what the policies answer, and keeps the best.
[[nodiscard]] std::vector<uint32_t> place_ranks(const Candidate& candidate, const Request& request,
                                                const StageCoster& costs, const Policies& policies);

}  // namespace corro::plan
