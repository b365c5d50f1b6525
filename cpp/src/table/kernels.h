// The dispatch table of the kernels: one per instruction set, all made from table_kernels_impl.h.
// They change rows and read them; the same bits come out of every set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "table/types.h"

namespace corro::table {

/// What updates of all rows of a table need.
struct UpdateArguments {
  size_t dim = 0;
  Optimizer optimizer = {};
};

/// Changes one row in place. `weights`: [dim] of the table's type. `state`: as row_layout.h says.
/// `gradient`: [dim] f32, finite. `rounding` seeds the rounding of bf16 and f16 weights. Pure.
using UpdateFunction = void (*)(std::byte* weights, float* state, const float* gradient,
                                const UpdateArguments& arguments, uint64_t rounding);
/// Widens the weights of one row. `values`: [dim] f32.
using ReadFunction = void (*)(const std::byte* weights, float* values, size_t dim);
/// Rounds to the nearest value, and to the largest finite one beyond it. `values`: [dim] f32.
using WriteFunction = void (*)(std::byte* weights, const float* values, size_t dim);

/// Immutable. Functions for f32, bf16 and f16; null for other types.
struct Kernels {
  const char* name = "";
  bool (*all_finite)(const float* values, size_t count) = nullptr;
  UpdateFunction update[kOptimizerKindCount][kDTypeCount] = {};
  ReadFunction read[kDTypeCount] = {};
  WriteFunction write[kDTypeCount] = {};
};

/// The tables this processor can run, from the plainest (always "baseline") to the best.
[[nodiscard]] std::span<const Kernels* const> available_kernels();

}  // namespace corro::table
