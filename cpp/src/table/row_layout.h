// A row consists of [weights, of the table's type][state of the optimizer, f32]. Weights are padded
// to a multiple of 4 bytes. The state:
//
//   sgd              none
//   momentum         velocities [dim]
//   adagrad          sums of squares [dim]
//   rowwise_adagrad  a sum of mean squares
//   adam             first moments [dim], second moments [dim], pushes (32 bits)
//   ftrl             z [dim], sums of squares [dim]
#pragma once

#include <cstddef>
#include <span>

#include "table/types.h"

namespace corro::table {

struct RowLayout {
  size_t weight_bytes = 0;  ///< Where the state begins.
  size_t state_count = 0;   ///< f32 values of it.
  [[nodiscard]] size_t bytes() const { return weight_bytes + state_count * sizeof(float); }
};

[[nodiscard]] RowLayout layout_of(const TableSpec& spec);
/// Writes the state of a row that no gradient has changed. `state`: [state_count].
void write_initial_state(const TableSpec& spec, std::span<float> state);

}  // namespace corro::table
