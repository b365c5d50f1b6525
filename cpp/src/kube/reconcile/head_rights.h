// The rights of an elastic job's head, and what it has them on: the Lease by which one head leads,
// the record of the job, and the progress that it tells of. Its ranks' pods have none.
#pragma once

#include <vector>

#include "kube/job/job_spec.h"
#include "kube/job/names.h"

namespace corro::kube {

/// Name of the head's ServiceAccount, Role and RoleBinding, "JOB-UID". With "-head", "-record" and
/// "-progress" behind it those of the Lease and the ConfigMaps.
[[nodiscard]] std::string head_rights_name(const JobSpec& spec);

/// Where the head keeps the job's record, for open_store(): "kubernetes:NAMESPACE/JOB-UID".
[[nodiscard]] std::string record_store(const JobSpec& spec);

/// The ConfigMap with the job's progress.
[[nodiscard]] std::string progress_name(const JobSpec& spec);

/// All of them, in the order in which they are made.
[[nodiscard]] std::vector<Json> head_rights(const JobSpec& spec);

}  // namespace corro::kube
