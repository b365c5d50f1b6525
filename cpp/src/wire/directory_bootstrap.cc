#include "wire/directory_bootstrap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <utility>

#include "wire/digest.h"

namespace corro::wire {
namespace {

Status refused(const std::string& path, std::string_view why) {
  return {Code::kPermissionDenied, fmt::format("bootstrap directory {}: {}", path, why)};
}

Status check_directory(int fd, const std::string& path) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return status_from_errno("bootstrap directory " + path, errno);
  if (info.st_uid != geteuid()) {
    return refused(path, fmt::format("belongs to user {}, not to {}: use a directory of your own",
                                     info.st_uid, geteuid()));
  }
  if ((info.st_mode & 077U) != 0) return refused(path, "others may enter it: chmod 700");
  return {};
}

/// Gives the finished file its name unless the name is taken (EEXIST). Returns 0 or an error
/// number.
int publish(int directory, const std::string& temporary, const std::string& name) {
  if (renameat2(directory, temporary.c_str(), directory, name.c_str(), RENAME_NOREPLACE) == 0)
    return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // File systems without RENAME_NOREPLACE (NFS): a hard link is as atomic.
  if (linkat(directory, temporary.c_str(), directory, name.c_str(), 0) != 0) return errno;
  unlinkat(directory, temporary.c_str(), 0);
  return 0;
}

Status write_whole(int fd, BytesView bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return status_from_errno("write", errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

std::string bootstrap_file_name(std::string_view key) {
  constexpr size_t kReadable = 64;
  std::string name = "k-";
  for (const char c : key.substr(0, kReadable)) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ? c : '_';
  }
  return name + '-' + to_hex(digest_of(key));
}

Result<std::unique_ptr<DirectoryBootstrap>> DirectoryBootstrap::open(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return status_from_errno(fmt::format("bootstrap directory {}: create", path), errno);
  }
  io::Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) {
    if (errno == ELOOP || errno == ENOTDIR)
      return refused(path, "is no directory (symbolic links are not followed)");
    return status_from_errno(fmt::format("bootstrap directory {}: open", path), errno);
  }
  CORRO_TRY(check_directory(directory.get(), path));
  return std::unique_ptr<DirectoryBootstrap>(new DirectoryBootstrap(std::move(directory), path));
}

Status DirectoryBootstrap::put(std::string_view key, BytesView value) {
  CORRO_TRY(check_bootstrap_put(key, value));
  const std::string context = fmt::format("bootstrap directory {}: put {}", path_, key);
  const std::string temporary = ".new-" + random_hex(12);
  const io::Fd file(openat(directory_.get(), temporary.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return status_from_errno(context, errno);
  const Status written = write_whole(file.get(), value);
  const int error =
      written.ok() ? publish(directory_.get(), temporary, bootstrap_file_name(key)) : 0;
  if (written.ok() && error == 0) return {};
  unlinkat(directory_.get(), temporary.c_str(), 0);
  if (!written.ok()) return written.with_context(context);
  if (error != EEXIST) return status_from_errno(context, error);
  const auto existing = read(key);
  if (existing.ok() && std::ranges::equal(*existing, value)) return {};
  return {Code::kAlreadyExists,
          context + ": the key has another value: use an empty directory or another CORRO_JOB_ID"};
}

Result<Bytes> DirectoryBootstrap::read(std::string_view key) {
  const io::Fd file(openat(directory_.get(), bootstrap_file_name(key).c_str(),
                           O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return status_from_errno("open", errno);
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return status_from_errno("fstat", errno);
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
    return Status(Code::kPermissionDenied, "is no regular file of this user");
  }
  Bytes value(kMaxBootstrapValue + 1);
  size_t size = 0;
  while (size < value.size()) {
    const ssize_t got = ::read(file.get(), value.data() + size, value.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_from_errno("read", errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kMaxBootstrapValue) return Status(Code::kInvalidArgument, "is too long");
  value.resize(size);
  return value;
}

Result<Bytes> DirectoryBootstrap::get(std::string_view key, Time deadline) {
  CORRO_TRY(check_bootstrap_key(key));
  constexpr Duration kLongestPause = std::chrono::milliseconds(20);
  Duration pause = std::chrono::microseconds(200);
  while (true) {
    auto value = read(key);
    if (value.ok()) return value;
    const std::string context = fmt::format("bootstrap directory {}: get {}", path_, key);
    if (value.status().code() != Code::kNotFound) return value.status().with_context(context);
    const Time now = monotonic_now();
    if (now >= deadline)
      return Status(Code::kDeadlineExceeded, context + ": nobody has put it in time");
    CORRO_TRY(check_interrupted());
    std::this_thread::sleep_for(std::min(pause, deadline - now));
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace corro::wire
