// reconcile: of a job and what there is of it, what to do now. Pure.
//
//   const ReadJob job = read_job(object, {});
//   Observed observed{.job = &object, .pods = ..., .options = &options};
//   Decision decision = reconcile(job, observed, now);
//   for (const Action& action : decision.actions) ...   // in this order; stop at the first failure
//
// The story of a job's states, and what a crash between any two actions leaves behind:
// docs/design/0022-kubernetes-jobs.md.
#pragma once

#include "kube/job/read_job.h"
#include "kube/reconcile/action.h"
#include "kube/reconcile/observed.h"

namespace corro::kube {

/// `job` has to be of `observed.job`. `observed.options` must not be null. What is observed may be
/// old: the actions are then refused or change nothing.
[[nodiscard]] Decision reconcile(const ReadJob& job, const Observed& observed, KubeTime now);

}  // namespace corro::kube
