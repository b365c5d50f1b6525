// Observed: all that a decision about one job rests on. The caller gathers it from its caches;
// nothing in it is trusted to be new, only to have been true.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "kube/job/job_spec.h"
#include "kube/reconcile/expectations.h"

namespace corro::kube {

/// Which ways to start pods together the cluster has.
struct Served {
  std::string native_gang;  ///< Version of scheduling.k8s.io that has PodGroup, or "".
  bool volcano = false;
  bool scheduler_plugins = false;
};

/// What the operator's flags and the cluster say; the same for all jobs.
struct Options {
  std::string agent_image = "corro-agent";
  std::string cluster_domain;
  /// MPIJob's --gang-scheduling: "" for none, "volcano", "native", or the scheduler's name.
  std::string gang_scheduler;
  /// schedulerName of CorroJob's pods where scheduler-plugins make the gang.
  std::string plugins_scheduler = "scheduler-plugins-scheduler";
  /// Of MPIJobs, only those with managedBy training.corro.dev/operator are ours.
  bool only_managed = false;
  Served served;
};

/// The API server did not take an object: its words, and when.
struct Refusal {
  std::string message;
  KubeTime at;
  /// The object itself is wrong (400, 422), as this generation of the job's manifest has it; 0: it
  /// was not taken for another reason, such as a quota.
  int64_t wrong_generation = 0;
};

/// Borrows all objects.
struct Observed {
  const Json* job = nullptr;
  std::vector<const Json*> pods;     ///< All with the job's uid as label.
  std::vector<const Json*> objects;  ///< All others with it: Service, ConfigMap, Job, PodGroup, ...
  std::set<ObjectName> foreign;      ///< Names the job needs and that somebody else's objects have.
  std::map<ObjectName, Refusal> refused;
  Expectations expected;
  const Options* options = nullptr;
};

}  // namespace corro::kube
