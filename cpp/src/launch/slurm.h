// Slurm: the hosts that it has given to the job in which the launcher runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/variables.h"
#include "launch/hosts.h"

namespace corro::launch {

/// What Slurm's variables say of the hosts.
struct SlurmHosts {
  std::vector<HostSlots> hosts;
  std::string
      source;  ///< For people: "Slurm: SLURM_JOB_NODELIST=n[1-2], SLURM_TASKS_PER_NODE=4(x2)".
  bool slots_asked_for = false;  ///< The user has told Slurm how many tasks there are.
};

/// Reads the allocation of `salloc` and `sbatch`, or of a step of one task that the launcher is:
/// of the step's own nodes then. Nothing outside of Slurm, and in one of a step's several tasks:
/// there each would start all ranks. INVALID_ARGUMENT names a variable that is not understood.
/// Pure.
[[nodiscard]] Result<std::optional<SlurmHosts>> find_slurm_hosts(const Variables& environment);

/// Reads "2(x3),1" as 2, 2, 2, 1. Pure.
[[nodiscard]] Result<std::vector<int>> expand_tasks_per_node(std::string_view text);

}  // namespace corro::launch
