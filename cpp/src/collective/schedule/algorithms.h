// The algorithms, one file each; schedule.cc calls them once supports() has agreed.
// docs/algorithms.md has their costs.
#pragma once

#include "collective/schedule/schedule.h"

namespace corro::collective {

[[nodiscard]] Schedule one_shot(const Problem& problem);
[[nodiscard]] Schedule two_shot(const Problem& problem);
[[nodiscard]] Schedule ring(const Problem& problem);
[[nodiscard]] Schedule recursive_doubling(const Problem& problem);
[[nodiscard]] Schedule rabenseifner(const Problem& problem);
[[nodiscard]] Schedule binomial(const Problem& problem);
[[nodiscard]] Schedule direct(const Problem& problem);
[[nodiscard]] Schedule bruck(const Problem& problem);
[[nodiscard]] Schedule two_level(const Problem& problem);
/// Of two_level(): allgather, reducescatter, alltoall.
[[nodiscard]] Schedule two_level_blocks(const Problem& problem);

}  // namespace corro::collective
