// The environment that makes mpirun find the job's hosts and its remote shell: the names of Open
// MPI 4 (ORTE), Open MPI 5 (PRRTE), Intel MPI and MPICH.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/job/job_spec.h"

namespace corro::kube {

inline constexpr std::string_view kConfigPath = "/etc/mpi";

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Variables of the launcher, in order. `remote_shell` is what starts a command on a host; "" with
/// real ssh.
[[nodiscard]] Variables launcher_variables(const JobSpec& spec, std::string_view remote_shell);

/// Variables of a worker.
[[nodiscard]] Variables worker_variables(const JobSpec& spec);

}  // namespace corro::kube
