// Which image the agents and heads of a job's new pods come from. Head and agents of different
// versions of corro refuse each other, so all pods that are there together have to have one image,
// though the operator's own --agent-image changes when it is replaced by another version:
//
//   no pod is there      the operator's image is taken, and written into the status before any pod
//                        is made: when a job begins, resumes, or begins anew with all of its pods
//   some pod is there    a new one gets the image that the status has
//
// A pod is there while it is that of its member's current generation: shown by a watch, or expected
// to be. A launcher's batch Job counts too, unless it is suspended: its template has the image, and
// makes pods at any time.
#pragma once

#include <string>

#include "kube/reconcile/job_view.h"

namespace corro::kube {

/// The image for pods that are made now; notes it in status.agentImage.
[[nodiscard]] std::string choose_agent_image(JobView& view);

}  // namespace corro::kube
