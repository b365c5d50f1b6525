// Numbers as text for people.
#pragma once

#include <string>
#include <vector>

namespace corro {

/// Writes ascending numbers as "0-3,8"; "" for none.
[[nodiscard]] std::string format_ranges(const std::vector<int>& numbers);

}  // namespace corro
