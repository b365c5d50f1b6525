// The dispatch table of the kernels: one per instruction set, all made from table_kernels_impl.h.
// They change rows and read them; the same bits come out of every set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "table/types.h"

namespace corro::table {

/// What an update of one row needs beside the row and its gradient.
struct UpdateArguments {
  size_t dim = 0;
  Optimizer optimizer;
};

/// Changes one row, `[weights][optimizer state]`. `gradient`: [dim] f32, finite.
using UpdateFunction = void (*)(std::byte* row, const float* gradient,
                                const UpdateArguments& arguments);
/// Reads or writes the weights of one row. `values`: [dim] f32.
using ReadFunction = void (*)(const std::byte* row, float* values, size_t dim);
using WriteFunction = void (*)(std::byte* row, const float* values, size_t dim);

/// Immutable.
struct Kernels {
  const char* name = "";
  /// True if all are finite.
  bool (*all_finite)(const float* values, size_t count) = nullptr;
  UpdateFunction update[kOptimizerKindCount][kDTypeCount] = {};
  ReadFunction read[kDTypeCount] = {};
  WriteFunction write[kDTypeCount] = {};
};

/// The tables this processor can run, from the plainest (always "baseline") to the best.
[[nodiscard]] std::span<const Kernels* const> available_kernels();

}  // namespace corro::table
