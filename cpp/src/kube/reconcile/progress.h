// The progress of an elastic job, as its head tells of it: a ConfigMap that the head writes.
#pragma once

#include "kube/reconcile/job_view.h"

namespace corro::kube {

/// Has it in the status, and makes an event of each change of the ranks that is not told there yet.
/// What the head writes may be anything: its pod is the user's.
void report_progress(JobView& view);

}  // namespace corro::kube
