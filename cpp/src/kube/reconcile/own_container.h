// OwnContainer: of a pod's containers, corro's own: container 0 of the template, into which the
// agent was injected. A pod may have others beside it: a proxy or a log shipper of the user's
// template, or one that a webhook of the cluster (Istio's) added, perhaps in front. The others say
// nothing about the job: one that runs on does not hold the job up, and one that fails does not
// fail it.
//
// Injection gives its container a variable that says which member it is, so the variable, and not a
// place in the list, tells which container is corro's. That holds for a pod that a webhook changed,
// and for one that was made of a template that has changed since.
//
//   running, waiting            the pod's phase counts
//   terminated, and the kubelet starts it again (OnFailure after a failure)
//                               the pod's phase counts
//   terminated for good         its exit code counts, whatever the other containers do
#pragma once

#include <string>

#include "kube/job/job_spec.h"

namespace corro::kube {

/// Borrows the pod.
struct OwnContainer {
  bool is_known = false;          ///< The pod's spec tells which container is corro's.
  const Json* status = nullptr;   ///< Its container status; null if the kubelet gave none.
  bool has_ended = false;         ///< For good.
  bool has_failed = false;        ///< Ended for good with another code than 0.
  bool is_ready = false;          ///< And every other container is, or has ended.
  std::string others_that_run{};  ///< Names of the other containers, once it has ended for good.
};

[[nodiscard]] OwnContainer own_container_of(const Json& pod);

/// What own_container_of() reads of a pod's spec: a cache may drop the rest.
[[nodiscard]] Json trimmed_containers(const Json& pod_spec);

}  // namespace corro::kube
