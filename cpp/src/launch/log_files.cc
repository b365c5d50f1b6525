#include "launch/log_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>

namespace corro::launch {
namespace {

constexpr mode_t kMode = 0644;

Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return status_from_errno("writing " + path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Result<io::Fd> open_empty(const std::string& path) {
  io::Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, kMode));
  if (!fd.valid()) return status_from_errno(path + " (choose another --log-dir)", errno);
  return fd;
}

/// N of "rank-N.log" and "rank-N.error.json"; -1 for other names.
int rank_of_file(std::string_view name) {
  constexpr std::string_view kRank = "rank-";
  if (!name.starts_with(kRank)) return -1;
  name.remove_prefix(kRank.size());
  int rank = -1;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  const std::string_view rest = name.substr(static_cast<size_t>(stop - name.data()));
  const bool ours = error == std::errc() && (rest == ".log" || rest == ".error.json");
  return ours ? rank : -1;
}

/// An earlier job's files of ranks that this one has not would look like its own.
void remove_files_from(const std::string& directory, int ranks) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (rank_of_file(entry.path().filename().native()) >= ranks) unlink(entry.path().c_str());
  }
}

}  // namespace

Result<LogFiles> LogFiles::create(const std::string& directory, int ranks) {
  LogFiles logs;
  logs.directory_ = directory;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return status_from_errno(
        "making the log directory " + directory + " (choose another --log-dir)", error.value());
  }
  unlink((directory + "/failure.json").c_str());
  for (int rank = 0; rank < ranks; ++rank) {
    unlink(fmt::format("{}/rank-{}.error.json", directory, rank).c_str());
    CORRO_ASSIGN(io::Fd file, open_empty(fmt::format("{}/rank-{}.log", directory, rank)));
    logs.files_.push_back(std::move(file));
  }
  remove_files_from(directory, ranks);
  return logs;
}

Status LogFiles::append(int rank, std::string_view bytes) {
  if (failed_) return {};
  const int fd = files_[static_cast<size_t>(rank)].get();
  const Status status = write_all(fd, bytes, fmt::format("{}/rank-{}.log", directory_, rank));
  failed_ = !status.ok();
  return status;
}

Status LogFiles::write_file(const std::string& name, std::string_view text) const {
  const std::string path = directory_ + "/" + name;
  CORRO_ASSIGN(const io::Fd file, open_empty(path));
  return write_all(file.get(), text, path);
}

}  // namespace corro::launch
