// Texts for people that have a bound: the reader sees that there was more.
//
//   shortened("not enough memory", 12)   // "not enoug..."
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace corro {

/// The text, or as much of it as fits into `most` bytes with "..." behind. Requires most >= 3.
[[nodiscard]] std::string shortened(std::string_view text, size_t most);

}  // namespace corro
