#include "plan/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

namespace corro::plan {

Result<std::string> read_text_file(const std::string& path, size_t most) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return status_from_errno(path, errno);
  std::error_code unknown;  // of a pipe
  const uintmax_t size = std::filesystem::file_size(path, unknown);
  if (!unknown && size > most) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: has {} bytes; at most {} are read", path, size, most));
  }
  std::string text;
  std::vector<char> block(size_t{1} << 16U);
  while (file && text.size() <= most) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block.data(), static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) return status_from_errno(path, errno);
  return text;
}

}  // namespace corro::plan
