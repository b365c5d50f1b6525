#include "device/kernels_impl.h"
#include "device/kernels_sets.h"

namespace corro::device {

const Kernels& avx512_kernels() {
  static constexpr Kernels kKernels = make_kernels("avx512");
  return kKernels;
}

}  // namespace corro::device
