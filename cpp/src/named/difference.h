// Difference: says in one sentence how two operations differ that ranks submitted under one name.
//
//   describe_difference(first, other);
//   // "Mismatched data types: One rank had type float32, but another rank had type float64."
//
// It compares the data type, the kind, the shape, the root, the scales, the reduce op and the
// codec, in this order, and names the first that differs. If all of them are equal, the counts per
// rank differ. A signature holds those as a hash, so the sentence has no numbers.
#pragma once

#include <string>

#include "named/fusion.h"

namespace corro::named {

/// Returns the sentence. It begins as Horovod's does (docs/horovod-behaviours.md), because scripts
/// look for these words. Requires that the two operations differ.
[[nodiscard]] std::string describe_difference(const Fusible& one, const Fusible& other);

}  // namespace corro::named
