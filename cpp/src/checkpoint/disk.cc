#include "checkpoint/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "checkpoint/layout.h"
#include "io/fd.h"

namespace corro::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = size_t{8} << 20U;        // of one write
constexpr size_t kLeastDirect = size_t{1} << 20U;  // below, the page cache is as good

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// Names in a folder are durable once the folder itself is written.
Status sync_folder(const std::string& path) {
  const io::Fd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || fsync(folder.get()) != 0) return status_from_errno(path, errno);
  return {};
}

void write_past_the_cache(int fd, bool direct) {
  const int flags = fcntl(fd, F_GETFL);
  (void)fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT);
}

/// Writes all of it; 0, or the error. A file system that takes no O_DIRECT says EINVAL, at once or
/// after a write that was cut short between two pages: then the page cache does it.
int write_all(int fd, std::span<const std::byte> bytes, size_t direct_bytes) {
  bool direct = direct_bytes > 0;
  write_past_the_cache(fd, direct);
  size_t done = 0;
  while (done < bytes.size()) {
    if (direct && done >= direct_bytes) write_past_the_cache(fd, direct = false);
    const size_t end = direct ? direct_bytes : bytes.size();
    const ssize_t count =
        pwrite(fd, bytes.data() + done, std::min(kChunk, end - done), static_cast<off_t>(done));
    if (count > 0) {
      done += static_cast<size_t>(count);
    } else if (count < 0 && errno == EINVAL && direct) {
      write_past_the_cache(fd, direct = false);
    } else if (count == 0 || errno != EINTR) {
      return count == 0 ? ENOSPC : errno;
    }
  }
  return 0;
}

/// Takes the room first: a full disk is known before anything is written. 0, or the error.
int reserve(int fd, size_t bytes) {
  if (bytes == 0 || fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
  const bool cannot = errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR;
  return cannot ? 0 : errno;
}

}  // namespace

Status RealDisk::make_folder(const std::string& path) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  if (error) return status_from_errno(path, error.value());
  return made ? sync_folder(folder_of(path)) : Status();
}

Status RealDisk::write_file(const std::string& path, std::span<const std::byte> bytes) {
  const io::Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return status_from_errno(path, errno);
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % kPageBytes == 0;
  const bool direct = aligned && bytes.size() >= kLeastDirect;
  int error = reserve(file.get(), bytes.size());
  if (error == 0)
    error = write_all(file.get(), bytes, direct ? bytes.size() / kPageBytes * kPageBytes : 0);
  if (error == 0 && fsync(file.get()) != 0) error = errno;
  if (error != 0) return status_from_errno(path, error);
  return sync_folder(folder_of(path));
}

Status RealDisk::rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return status_from_errno(to, errno);
  return sync_folder(folder_of(to));
}

Status RealDisk::remove(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return status_from_errno(path, error.value());
  return sync_folder(folder_of(path));
}

Result<std::vector<std::string>> names_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator at(folder, error);
  while (!error && at != fs::directory_iterator()) {
    names.push_back(at->path().filename().string());
    at.increment(error);
  }
  if (error == std::errc::no_such_file_or_directory)
    return Status(Code::kNotFound, folder + ": there is no such folder");
  if (error) return status_from_errno(folder, error.value());
  return names;
}

}  // namespace corro::checkpoint
