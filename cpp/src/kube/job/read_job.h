// read_job: a job's JSON, as the API server gives it, to a JobSpec and a list of what is wrong.
//
//   const ReadJob job = read_job(object, {});
//   if (!job.problems.empty()) ...   // "spec.worker.target: must be an integer from 1 to 10000"
#pragma once

#include <string>
#include <vector>

#include "kube/job/field_reader.h"
#include "kube/job/job_spec.h"

namespace corro::kube {

inline constexpr std::string_view kCorroGroup = "training.corro.dev";
inline constexpr std::string_view kMpiGroup = "kubeflow.org";

/// What the operator's flags say of v1alpha1, which leaves the size of a node to the operator.
struct ReadOptions {
  int units_per_node = 1;
  std::string processing_resource = "nvidia.com/gpu";
};

/// With problems, of the spec only names, kind and times are to be used.
struct ReadJob {
  JobSpec spec;
  Problems problems;
  std::vector<std::string> warnings;  ///< For events; the job runs nevertheless.
};

/// Never fails otherwise: whatever the object is, what is wrong with it becomes a problem.
[[nodiscard]] ReadJob read_job(const Json& object, const ReadOptions& options);

}  // namespace corro::kube
