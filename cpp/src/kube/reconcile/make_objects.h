// The making of a job's objects and pods, in their order.
#pragma once

#include "kube/reconcile/job_view.h"

namespace corro::kube {

/// Secrets, Services, ConfigMap, NetworkPolicy, the head's rights, PodGroup. False if one cannot be made, or the head
/// has no address yet: then no pod is made.
bool make_objects(JobView& view);

/// Head, workers, launcher.
void make_pods(JobView& view);

/// One pod, of the member's current generation, unless it is there or has to wait.
void make_member(JobView& view, const PodContext& context, Member member, int index);

/// The head's address, "10.96.0.7:7077"; "" before its Service has one.
[[nodiscard]] std::string head_address(const JobView& view);

/// Workers whose current pod is ready.
[[nodiscard]] std::vector<int> ready_workers(const JobView& view);

}  // namespace corro::kube
