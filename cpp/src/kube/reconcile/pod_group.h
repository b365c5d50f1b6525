// PodGroup: pods that start together or not at all, of whichever of three APIs the cluster serves.
// The head is never in it.
#pragma once

#include <string>

#include "kube/reconcile/objects.h"

namespace corro::kube {

/// Which API makes this job's gang; kOff for none.
struct GangChoice {
  Gang gang = Gang::kOff;
  std::string group = {};      ///< Name of the PodGroup.
  std::string scheduler = {};  ///< schedulerName of the pods; "" to leave the template's.
  std::string missing = {};  ///< Set if the manifest names an API that the cluster does not serve.
};

[[nodiscard]] GangChoice choose_gang(const JobSpec& spec, const Options& options);

/// How many pods have to fit at once. The launcher counts only if it is there from the start.
[[nodiscard]] int gang_size(const JobSpec& spec);

[[nodiscard]] Json pod_group(const JobSpec& spec, const GangChoice& choice, const Options& options);

/// True if the pods of each round are a group of Kueue, which admits all of them or none. Those of
/// an elastic job are admitted one by one.
[[nodiscard]] bool starts_by_kueue(const JobSpec& spec, const GangChoice& choice);

/// Puts a worker into its queue of Kueue, and into the group of its round if there is one.
void join_queue(const JobSpec& spec, const GangChoice& choice, int round, Json& pod);

/// Makes a pod (or a Job's template) one of the gang.
void join_gang(const GangChoice& choice, Json& pod);

}  // namespace corro::kube
