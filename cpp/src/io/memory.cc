#include "io/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace corro::io {
namespace {

constexpr size_t kMaxFileSize = static_cast<size_t>(std::numeric_limits<off_t>::max());

/// The kernel answers a file that grows over RLIMIT_FSIZE with a deadly signal: asked before.
Status check_file_size_limit(size_t size) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      size <= limit.rlim_cur)
    return {};
  return {Code::kResourceExhausted, fmt::format("shared memory: {} bytes are above the file size "
                                                "limit of {} bytes: raise it (ulimit -f unlimited)",
                                                size, limit.rlim_cur)};
}

void check_range(size_t offset, size_t length) {
  CORRO_CHECK(length <= kMaxFileSize && offset <= kMaxFileSize - length, offset, length);
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void Mapping::reset() {
  if (data_ != nullptr) munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

Result<Fd> create_memfd(const std::string& name, size_t size) {
  CORRO_CHECK(size <= kMaxFileSize, size);
  CORRO_TRY(check_file_size_limit(size));
  Fd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return status_from_errno("memfd_create " + name, errno);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return status_from_errno(fmt::format("memfd {}: set size {}", name, size), errno);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return status_from_errno(fmt::format("memfd {}: seal", name), errno);
  }
  return fd;
}

Result<size_t> sealed_size(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status(Code::kPermissionDenied,
                  "shared memory from a peer is not sealed against shrinking: refused");
  }
  // Touching a huge page that the pool cannot give is a SIGBUS, however much memory is free.
  struct statfs system{};
  if (fstatfs(fd, &system) != 0)
    return status_from_errno("shared memory from a peer: fstatfs", errno);
  if (system.f_type == HUGETLBFS_MAGIC) {
    return Status(Code::kPermissionDenied,
                  "shared memory from a peer is made of huge pages: refused");
  }
  struct stat info{};
  if (fstat(fd, &info) != 0) return status_from_errno("shared memory from a peer: fstat", errno);
  return static_cast<size_t>(info.st_size);
}

Result<Mapping> map_shared(int fd, size_t size) {
  CORRO_CHECK(size > 0, "an empty mapping does not exist");
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED)
    return status_from_errno(
        fmt::format("map {} bytes of shared memory (ulimit -v limits address space)", size), errno);
  return Mapping(static_cast<std::byte*>(data), size);
}

Status make_private(std::byte* data, size_t length) {
  constexpr size_t kPiece = 256U << 10U;
  std::vector<std::byte> kept(std::min(kPiece, length));
  for (size_t done = 0; done < length;) {
    std::byte* place = data + done;
    const size_t bytes = std::min(kPiece, length - done);
    std::memcpy(kept.data(), place, bytes);
    if (mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED) {
      return status_from_errno(fmt::format("map {} bytes of private memory", bytes), errno);
    }
    std::memcpy(place, kept.data(), bytes);
    done += bytes;
  }
  return {};
}

Status make_copy_on_write(int fd, size_t offset, std::byte* data, size_t length) {
  check_range(offset, length);
  // Without a reservation: most children store to little of what their parent has.
  if (mmap(data, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, fd,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    return status_from_errno("map a private view of shared memory", errno);
  }
  return {};
}

Status commit(int fd, size_t offset, size_t length) {
  check_range(offset, length);
  if (length == 0) return {};
  CORRO_TRY(check_memory_limit(tightest_memory_limit(), length));
  while (fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0) {
    if (errno == EINTR) continue;
    return status_from_errno(fmt::format("shared memory: commit {} bytes", length), errno);
  }
  return {};
}

Status release_pages(int fd, size_t offset, size_t length) {
  check_range(offset, length);
  if (length == 0) return {};
  constexpr int kMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  while (fallocate(fd, kMode, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0) {
    if (errno == EINTR) continue;
    return status_from_errno(fmt::format("shared memory: release {} bytes", length), errno);
  }
  return {};
}

}  // namespace corro::io
