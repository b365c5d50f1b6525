// How many ranks a machine is good for, when the user does not say.
#pragma once

#include <string>

#include "agent/machine.h"

namespace corro::launch {

struct RankChoice {
  int ranks = 1;
  std::string reason;  ///< "one per GPU"; for one line on the screen.
};

/// Cores that can really be used at a time: physical cores, cut to the cgroup's quota; at least 1.
[[nodiscard]] int usable_cores(const agent::MachineFacts& facts);

/// One rank per GPU if there are any. Else one per core up to 8 cores and one per 4 cores above 32
/// (8 in between): many cores are better used as threads inside a rank than as ranks. Never more
/// than one rank per GiB of free memory. Pure.
[[nodiscard]] RankChoice choose_ranks(const agent::MachineFacts& facts);

}  // namespace corro::launch
