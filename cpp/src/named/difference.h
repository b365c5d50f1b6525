// What differs between two operations that ranks submitted under one name.
//
//   describe_difference(first, other);
//   // "Mismatched data types: One rank had type float32, but another rank had type float64."
#pragma once

#include <string>

#include "named/fusion.h"

namespace corro::named {

/// Returns a sentence that begins as Horovod's does (docs/horovod-behaviours.md), because scripts
/// look for these words: of the data type, the kind, the shape, the root, the scales, the reduce op
/// and the codec, the first that differs; else of the counts per rank. The two are not the same().
[[nodiscard]] std::string describe_difference(const Fusible& one, const Fusible& other);

}  // namespace corro::named
