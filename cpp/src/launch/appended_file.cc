#include "launch/appended_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace corro::launch {
namespace {

constexpr mode_t kMode = 0644;

}  // namespace

Result<AppendedFile> AppendedFile::create(std::string path, std::string_view option,
                                          Earlier earlier) {
  AppendedFile file;
  const int empties = earlier == Earlier::kDropped ? O_TRUNC : 0;
  file.fd_.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | empties, kMode));
  if (!file.fd_.valid())
    return status_from_errno(fmt::format("{} (choose another {})", path, option), errno);
  file.path_ = std::move(path);
  return file;
}

Status AppendedFile::append(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return status_from_errno("writing " + path_, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Status make_directories(const std::string& path, std::string_view option) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return {};
  return status_from_errno(fmt::format("making the directory {} (choose another {})", path, option),
                           error.value());
}

}  // namespace corro::launch
