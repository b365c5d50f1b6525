#include "table/table_kernels_impl.h"
#include "table/table_kernels_sets.h"

namespace corro::table {

const Kernels& avx2_kernels() {
  static constexpr Kernels kKernels = make_kernels("avx2");
  return kKernels;
}

}  // namespace corro::table
