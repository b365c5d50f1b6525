// How fast this machine computes and moves bytes: what a cluster file says of a host without GPUs.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace corro::app {

struct HostSpeed {
  uint32_t cores = 0;
  double flops_of_one = 0;      ///< FLOP/s of one core while the others rest.
  double flops_of_all = 0;      ///< Of all cores together.
  double bandwidth_of_one = 0;  ///< Bytes/s read and written by one core.
  double bandwidth_of_all = 0;
};

/// Measures for about two seconds, with one thread a core. f32 matrix products of tiles in the
/// nearest cache, with the widest vectors that the processor has; copies between arrays that no
/// cache holds. The best of several tries: other work on the machine only makes it slower.
[[nodiscard]] HostSpeed measure_host(uint32_t cores);

}  // namespace corro::app
