#include "device/kernels_impl.h"
#include "device/kernels_sets.h"

namespace corro::device {

const Kernels& baseline_kernels() {
  static constexpr Kernels kKernels = make_kernels("baseline");
  return kKernels;
}

}  // namespace corro::device
