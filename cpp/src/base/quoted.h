// Words as a shell reads them.
#pragma once

#include <string>

namespace corro {

/// Writes a word so that a shell reads it back. Pure.
[[nodiscard]] std::string quoted(const std::string& word);

}  // namespace corro
