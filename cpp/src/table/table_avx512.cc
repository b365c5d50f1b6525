#include "table/table_kernels_impl.h"
#include "table/table_kernels_sets.h"

namespace corro::table {

const Kernels& avx512_kernels() {
  static constexpr Kernels kKernels = make_kernels("avx512");
  return kKernels;
}

}  // namespace corro::table
