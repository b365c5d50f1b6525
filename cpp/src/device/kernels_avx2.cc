#include "device/kernels_impl.h"
#include "device/kernels_sets.h"

namespace corro::device {

const Kernels& avx2_kernels() {
  static constexpr Kernels kKernels = make_kernels("avx2");
  return kKernels;
}

}  // namespace corro::device
