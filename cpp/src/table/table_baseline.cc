#include "table/table_kernels_impl.h"
#include "table/table_kernels_sets.h"

namespace corro::table {

const Kernels& baseline_kernels() {
  static constexpr Kernels kKernels = make_kernels("baseline");
  return kKernels;
}

}  // namespace corro::table
