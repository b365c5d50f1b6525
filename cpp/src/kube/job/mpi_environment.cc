#include "kube/job/mpi_environment.h"

#include <fmt/format.h>

#include "kube/job/hosts.h"

namespace corro::kube {
namespace {

constexpr const char* kShellOptions = "-o ConnectionAttempts=10";

void add_open_mpi(const JobSpec& spec, const std::string& hostfile, const std::string& shell,
                  Variables& variables) {
  if (!spec.is_old_mpi()) {
    variables.emplace_back("OMPI_MCA_orte_keep_fqdn_hostnames", "true");
    variables.emplace_back("PRTE_MCA_prte_keep_fqdn_hostnames", "true");
  }
  variables.emplace_back("OMPI_MCA_orte_default_hostfile", hostfile);
  variables.emplace_back("PRTE_MCA_prte_default_hostfile", hostfile);
  if (!spec.is_old_mpi()) {
    variables.emplace_back("OMPI_MCA_plm_rsh_args", kShellOptions);
    variables.emplace_back("PRTE_MCA_plm_ssh_args", kShellOptions);
  }
  if (!shell.empty()) {
    variables.emplace_back("OMPI_MCA_plm_rsh_agent", shell);
    variables.emplace_back("PRTE_MCA_plm_ssh_agent", shell);
  }
  if (spec.is_old_mpi()) return;
  variables.emplace_back("OMPI_MCA_orte_set_default_slots", std::to_string(spec.slots));
  variables.emplace_back("PRTE_MCA_prte_set_default_slots", std::to_string(spec.slots));
}

void add_intel(const JobSpec& spec, const std::string& hostfile, const std::string& shell,
               Variables& variables) {
  variables.emplace_back("I_MPI_HYDRA_HOST_FILE", hostfile);
  if (!shell.empty()) {
    variables.emplace_back("I_MPI_HYDRA_BOOTSTRAP", "ssh");
    variables.emplace_back("I_MPI_HYDRA_BOOTSTRAP_EXEC", shell);
  }
  if (spec.is_old_mpi()) return;
  variables.emplace_back("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", kShellOptions);
  variables.emplace_back("I_MPI_PERHOST", std::to_string(spec.slots));
}

void add_mpich(const JobSpec& spec, const std::string& hostfile, const std::string& shell,
               Variables& variables) {
  variables.emplace_back("HYDRA_HOST_FILE", hostfile);
  if (!shell.empty()) variables.emplace_back("HYDRA_LAUNCHER_EXEC", shell);
  if (!spec.is_old_mpi()) variables.emplace_back("HYDRA_LAUNCH_EXTRA_ARGS", kShellOptions);
}

}  // namespace

Variables launcher_variables(const JobSpec& spec, std::string_view remote_shell) {
  Variables variables;
  const std::string hostfile = fmt::format("{}/hostfile", kConfigPath);
  std::string shell(remote_shell);
  if (spec.is_old_mpi() && !shell.empty()) shell = fmt::format("{}/kubexec.sh", kConfigPath);
  if (!spec.is_old_mpi()) variables.emplace_back("K_MPI_JOB_ROLE", "launcher");
  switch (spec.implementation) {
    case MpiImplementation::kOpenMpi:
      add_open_mpi(spec, hostfile, shell, variables);
      break;
    case MpiImplementation::kIntel:
      add_intel(spec, hostfile, shell, variables);
      break;
    case MpiImplementation::kMpich:
      add_mpich(spec, hostfile, shell, variables);
      break;
  }
  const bool keeps_gpus =
      spec.launcher_is_worker || (spec.version == MpiVersion::kV1 && launcher_has_gpu(spec));
  if (keeps_gpus) return variables;
  variables.emplace_back("NVIDIA_VISIBLE_DEVICES", "");
  variables.emplace_back("NVIDIA_DRIVER_CAPABILITIES", "");
  return variables;
}

Variables worker_variables(const JobSpec& spec) {
  if (!spec.is_mpi() || spec.is_old_mpi()) return {};
  return {{"K_MPI_JOB_ROLE", "worker"}};
}

}  // namespace corro::kube
