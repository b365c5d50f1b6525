// The pods of a job, and MPIJob's launcher Job, as JSON to create.
#pragma once

#include <string>

#include "kube/reconcile/injection.h"
#include "kube/reconcile/pod_group.h"

namespace corro::kube {

/// What pods need beside the spec.
struct PodContext {
  const JobSpec& spec;
  const Options& options;
  GangChoice gang;  ///< That new pods join.
  std::string head_address;
  int round = 0;
};

[[nodiscard]] Json head_pod(const PodContext& context, int generation);
[[nodiscard]] Json worker_pod(const PodContext& context, int index, int generation);
/// v1's launcher.
[[nodiscard]] Json launcher_pod(const PodContext& context, int generation);
/// The batch Job of the other versions. Its hash annotation is that of its template.
[[nodiscard]] Json launcher_job(const PodContext& context);

/// False if the launcher's image has to start by itself: mpirun is then started only once.
[[nodiscard]] bool launcher_has_command(const JobSpec& spec);

}  // namespace corro::kube
