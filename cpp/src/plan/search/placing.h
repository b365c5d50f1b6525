// Which device is which rank, on clusters whose links are not all alike.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/search/planner.h"
#include "plan/search/shapes.h"

namespace corro::plan {

/// A device for each rank of the candidate; empty: rank i on device i of its pools, which is as
/// good where links are alike, and all that is known of more than kMostPlaced devices.
inline constexpr uint32_t kMostPlaced = 1024;

/// Compares, by what a step sends over the slowest link of each axis, the order of devices as they
/// are numbered, the one that plan/solve finds and what the policies answer, and keeps the best.
[[nodiscard]] std::vector<uint32_t> place_ranks(const Candidate& candidate, const Request& request,
                                                const StageCoster& costs, const Policies& policies);

/// What each stage's groups get of the networks between hosts when rank i is on devices[i]: the
/// narrowest link that a ring of a group uses, shared with the other groups that leave the host
/// there. Counted as if hosts held as many of a group as in the order of ranks, and never more than
/// `widest`. Nothing if a group is torn that the order of ranks keeps on one host.
[[nodiscard]] std::optional<std::vector<AxisNetworks>> networks_used(
    const JobShape& shape, const Cluster& cluster, const std::vector<uint32_t>& devices,
    uint32_t host_devices, double widest);

}  // namespace corro::plan
