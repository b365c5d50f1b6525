// What a cache may forget of an object: decisions are the same without it.
#pragma once

#include "kube/job/job_spec.h"

namespace corro::kube {

/// Drops from an object what reconcile() and read_job() never read. Of a pod (which has to have its
/// kind) metadata and the ends of its containers stay, a few hundred bytes of several thousand.
void trim(Json& object);

}  // namespace corro::kube
