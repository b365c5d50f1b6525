// How many ranks a machine is good for, when the user does not say.
#pragma once

#include <cstdint>
#include <string>

namespace corro::launch {

/// What counts for the choice; read by read_machine().
struct MachineFacts {
  int gpus = 0;               ///< NVIDIA devices that this process may use.
  int cores = 1;              ///< Physical cores among the processors this process may run on.
  double cpu_quota = 0;       ///< Cores' worth of time the cgroup allows; 0: no limit.
  uint64_t memory_bytes = 0;  ///< Memory that is free for us; 0: unknown.
};

struct RankChoice {
  int ranks = 1;
  std::string reason;  ///< "one per GPU"; for one line on the screen.
};

/// Cores that can really be used at a time: physical cores, cut to the cgroup's quota; at least 1.
[[nodiscard]] int usable_cores(const MachineFacts& facts);

/// One rank per GPU if there are any. Else one per core up to 8 cores and one per 4 cores above 32
/// (8 in between): many cores are better used as threads inside a rank than as ranks. Never more
/// than one rank per GiB of free memory. Pure.
[[nodiscard]] RankChoice choose_ranks(const MachineFacts& facts);

}  // namespace corro::launch
