// Reads what this machine offers: processors, quota, GPUs, memory, names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/variables.h"

namespace corro::agent {

/// What counts for how many ranks it gets.
struct MachineFacts {
  int gpus = 0;               ///< NVIDIA devices that this process may use.
  int cores = 1;              ///< Physical cores among the processors this process may run on.
  double cpu_quota = 0;       ///< Cores' worth of time the cgroup allows; 0: no limit.
  uint64_t memory_bytes = 0;  ///< Memory that is free for us; 0: unknown.
};

/// One logical processor that this process may use.
struct Processor {
  int id = 0;
  int core = 0;  ///< Lowest processor of the same physical core.
  int package = 0;
  int node = 0;  ///< NUMA node.
};

struct Machine {
  MachineFacts facts;
  std::vector<Processor> processors;  ///< Those this process may run on.
  std::string host;
};

/// Reads /proc, /sys, /dev and the affinity of this process; what cannot be read counts as absent.
[[nodiscard]] Machine read_machine(const Variables& environment);

/// GPUs that CUDA_VISIBLE_DEVICES leaves of `devices`; all if it is not set. Pure.
[[nodiscard]] int visible_gpus(int devices, const Variables& environment);

/// A TCP port on the loopback that is free now and lies below the range from which the kernel
/// takes ports for others, so that it stays free until rank 0 listens on it; 0 if there is none.
[[nodiscard]] int find_free_port();

}  // namespace corro::agent
