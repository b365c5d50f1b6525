// The files of MPIJob's ConfigMap: hostfile, discover_hosts.sh and kubexec.sh, as each version and
// MPI wants them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kube/job/job_spec.h"

namespace corro::kube {

/// Name under which launcher and workers reach a host of the job: HOST.JOB.NAMESPACE.svc[.DOMAIN],
/// in versions before v2beta1 HOST alone.
[[nodiscard]] std::string host_address(const JobSpec& spec, const std::string& host,
                                       std::string_view cluster_domain);

/// All wanted workers, the launcher before them if it is one.
[[nodiscard]] std::string hostfile_text(const JobSpec& spec, std::string_view cluster_domain);

/// A script that prints the hosts of the workers that run, by index; v1 prints their slots too.
[[nodiscard]] std::string discover_hosts_text(const JobSpec& spec, const std::vector<int>& running,
                                              std::string_view cluster_domain);

/// What v1alpha1 to v1 call as remote shell: `remote_shell` takes its place.
[[nodiscard]] std::string kubexec_text(std::string_view remote_shell);

/// True if v1 counts the launcher among the hosts: it asks for GPUs.
[[nodiscard]] bool launcher_has_gpu(const JobSpec& spec);

}  // namespace corro::kube
