// One function per instruction set that the kernels are compiled for; which exist depends on the
// processor family.
#pragma once

#include "table/kernels.h"

namespace corro::table {

const Kernels& baseline_kernels();
const Kernels& avx2_kernels();    ///< x86-64 with AVX2 and F16C.
const Kernels& avx512_kernels();  ///< x86-64 with AVX-512 F, BW, DQ and VL.

}  // namespace corro::table
