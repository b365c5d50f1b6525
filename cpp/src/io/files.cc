#include "io/files.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "io/fd.h"

namespace corro::io {

std::string read_small_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<std::string> read_file(const std::string& path, size_t most) {
  const auto failed = [](int error) {
    return Status(status_from_errno("", error).code(), std::strerror(error));
  };
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return failed(errno);
  std::string text;
  std::array<char, 4096> block{};
  while (text.size() <= most) {
    const ssize_t count = read(file.get(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(errno);
    if (count == 0) return text;
    text.append(block.data(), static_cast<size_t>(count));
  }
  return Status(Code::kResourceExhausted, fmt::format("larger than {} MiB", most >> 20U));
}

}  // namespace corro::io
