// The kernel of CorroPlace: what a rank asks about its place in the job when a graph runs, since that
// changes in an elastic job.
#pragma once

#include "c_api.h"

namespace corro::tensorflow {

/// Registers it.
void register_place_kernel();

}  // namespace corro::tensorflow
