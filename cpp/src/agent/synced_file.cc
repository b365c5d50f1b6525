#include "agent/synced_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

namespace corro::agent {
namespace {

constexpr size_t kReadBlock = size_t{256} << 10U;

}  // namespace

Result<SyncedFile> look_at_file(int folder, const std::string& name) {
  struct stat facts{};
  if (fstatat(folder, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0)
    return status_from_errno(name, errno);
  SyncedFile file;
  if (S_ISLNK(facts.st_mode)) {
    std::array<char, PATH_MAX> target{};
    const ssize_t size = readlinkat(folder, name.c_str(), target.data(), target.size());
    if (size < 0) return status_from_errno(name, errno);
    file.kind = SyncedKind::kLink;
    file.link.assign(target.data(), static_cast<size_t>(size));
    return file;
  }
  if (!S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode))
    return Status(Code::kFailedPrecondition, name + ": no file");
  file.permissions = static_cast<uint16_t>(facts.st_mode & kPermissions);
  file.kind = S_ISDIR(facts.st_mode) ? SyncedKind::kFolder : SyncedKind::kFile;
  if (S_ISREG(facts.st_mode)) file.size = static_cast<uint64_t>(facts.st_size);
  return file;
}

Result<ContentReader> ContentReader::open(int folder, const std::string& name) {
  // A pipe that has taken the file's place would wait for a writer.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  io::Fd fd(openat(folder, name.c_str(), kFlags));
  if (!fd.valid()) return status_from_errno(name, errno);
  struct stat facts{};
  if (fstat(fd.get(), &facts) != 0) return status_from_errno(name, errno);
  if (!S_ISREG(facts.st_mode)) return Status(Code::kFailedPrecondition, name + ": no file");
  ContentReader reader(std::move(fd));
  reader.block_.resize(std::clamp<uint64_t>(static_cast<uint64_t>(facts.st_size), 1, kReadBlock));
  return reader;
}

Status ContentReader::read(uint64_t& most) {
  while (most > 0) {
    const size_t wanted = std::min<uint64_t>(most, block_.size());
    const ssize_t count = pread(fd_.get(), block_.data(), wanted, static_cast<off_t>(size_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return status_from_errno("reading", errno);
    if (count == 0) return {};
    digest_.add(BytesView(block_).first(static_cast<size_t>(count)));
    size_ += static_cast<uint64_t>(count);
    most -= static_cast<uint64_t>(count);
  }
  return {};
}

bool ContentReader::set_permissions(uint16_t permissions) {
  struct stat facts{};
  if (fstat(fd_.get(), &facts) != 0) return false;
  return (facts.st_mode & kPermissions) == permissions || fchmod(fd_.get(), permissions) == 0;
}

}  // namespace corro::agent
