// What a command writes: all of it, or nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace corro::app {

struct OutputFile {
  std::string path;
  std::string text;
};

/// Writes every file under another name beside it, then gives all of them their names: a failure
/// before leaves nothing behind, and who reads a file meanwhile finds the old one or the new one.
/// What is no regular file (/dev/stdout, a pipe) is written to as it is. Fails as opening, writing
/// or renaming does, with the path.
[[nodiscard]] Status write_files(const std::vector<OutputFile>& files);

/// Fails if stdout takes not all of it (a full disk).
[[nodiscard]] Status print_text(std::string_view text);

}  // namespace corro::app
