// The values of rows that no gradient has changed. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "table/types.h"

namespace corro::table {

/// Writes the initial values of the row of `key`, before they are rounded to the table's type.
/// Uses additions, multiplications, divisions and square roots alone, which have the same bits
/// everywhere. `values`: [dim] f32.
void write_initial(const TableSpec& spec, uint64_t key, std::span<float> values);

}  // namespace corro::table
