// What the status says of a job that is not finished: its state, its counts, and what it waits for.
#pragma once

#include "kube/reconcile/job_view.h"

namespace corro::kube {

/// desired, ready, replicaStatuses.
void count_pods(JobView& view);

/// Counts, Running, Restarting and Pending, and the state.
void report(JobView& view);

}  // namespace corro::kube
