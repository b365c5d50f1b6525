// What goes: pods that were replaced, and what a finished or suspended job no longer needs.
#pragma once

#include "kube/reconcile/job_view.h"

namespace corro::kube {

/// So long after the end of its grace period a deleted pod counts as stuck.
inline constexpr std::chrono::seconds kStuckAfter{30};

/// Deletes pods of older generations and surplus workers. The last one that failed by itself stays
/// for its logs, until the next does. Stops containers that run on beside corro's own, which ended.
void remove_old_pods(JobView& view);

void remove_pod_groups(JobView& view);

/// Of a finished job: cleanPodPolicy, head, PodGroup, and after its time to live the job.
void clean_up(JobView& view);

}  // namespace corro::kube
