// Whole files as text, for the loaders: the one I/O of this folder.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace corro::plan {

/// Reads a file. INVALID_ARGUMENT before a byte is read if it has more than `most`; of a pipe
/// hardly more are read, and who parses the text then says that it is too long. Fails as opening or
/// reading it does, with the path.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, size_t most);

}  // namespace corro::plan
