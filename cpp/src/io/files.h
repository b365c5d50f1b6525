// Small files of /proc and /sys.
#pragma once

#include <string>

namespace corro::io {

/// Reads a whole small file; "" if it cannot be read.
[[nodiscard]] std::string read_small_file(const std::string& path);

}  // namespace corro::io
