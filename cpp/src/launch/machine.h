// Reads what this machine offers: processors, quota, GPUs, memory, names.
#pragma once

#include <string>
#include <vector>

#include "launch/binding.h"
#include "launch/options.h"
#include "launch/ranks.h"

namespace corro::launch {

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

/// Reads a small file of /proc or /sys; "" if it cannot be read.
[[nodiscard]] std::string read_small_file(const std::string& path);

}  // namespace corro::launch
