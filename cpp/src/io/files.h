// Files that are read as a whole: small ones of /proc and /sys, and those that a user names.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace corro::io {

/// Reads a whole small file; "" if it cannot be read.
[[nodiscard]] std::string read_small_file(const std::string& path);
/// Reads a whole file, or what a pipe brings to its end. The kernel's reason if it cannot be read,
/// RESOURCE_EXHAUSTED if there is more than `most`; neither names the file. Blocks.
[[nodiscard]] Result<std::string> read_file(const std::string& path, size_t most);

}  // namespace corro::io
