// The environment of each rank.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"

namespace corro::launch {

/// What all ranks of a local job share.
struct JobFacts {
  std::string job_id;
  std::string agent;      ///< Name of the agent's abstract Unix socket.
  std::string log_dir;    ///< Of rank-N.log and failure.json; may be relative.
  std::string error_dir;  ///< The same, absolute, for TORCHELASTIC_ERROR_FILE of each rank.
  int ranks = 1;
  int master_port = 0;
  int threads = 1;  ///< OMP_NUM_THREADS unless the user set it.
};

/// Applies --env to what was inherited: "K=V" sets, "K" insists that K is there.
/// INVALID_ARGUMENT names the one that is wrong.
[[nodiscard]] Result<Variables> apply_env_options(Variables inherited,
                                                  const std::vector<std::string>& options);

/// The variables that corro adds for a rank: ours and torchrun's. Never the job's secret. `base` is
/// what the user has: OMP_NUM_THREADS and Python's settings there are kept. Pure.
[[nodiscard]] Variables worker_variables(const JobFacts& job, int rank, const Variables& base);

}  // namespace corro::launch
