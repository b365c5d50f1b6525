#include "obs/sealed_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace corro::obs {
namespace {

#ifndef F_SEAL_FUTURE_WRITE
constexpr int F_SEAL_FUTURE_WRITE = 0x10;
#endif

Status error_of(std::string_view what, std::string_view call, int error) {
  return status_from_errno(fmt::format("{}: {}", what, call), error);
}

Status refused(std::string_view what, std::string_view why) {
  return {Code::kDataLoss, fmt::format("{}: {}", what, why)};
}

/// Fixes the size; then forbids new writable mappings where the kernel can (5.1), so that readers
/// cannot write.
Status seal(int fd, std::string_view what) {
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return error_of(what, "sealing", errno);
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0 && errno != EINVAL)
    return error_of(what, "sealing", errno);
  return {};
}

}  // namespace

/// Its pages are committed, so that a full machine is an error here and no SIGBUS later.
Result<SealedMemory> SealedMemory::create(const char* name, size_t bytes, std::string_view what) {
  SealedMemory made;
  made.fd_ = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made.fd_ < 0) return error_of(what, "memfd_create", errno);
  const int error = posix_fallocate(made.fd_, 0, static_cast<off_t>(bytes));
  if (error != 0) return error_of(what, fmt::format("no memory for {} bytes", bytes), error);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd_, 0);
  if (mapped == MAP_FAILED) return error_of(what, "mmap", errno);
  made.bytes_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(mapped),
                                           [bytes](std::byte* all) { munmap(all, bytes); });
  CORRO_TRY(seal(made.fd_, what));
  return made;
}

SealedMemory::SealedMemory(SealedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), bytes_(std::move(other.bytes_)) {}

SealedMemory& SealedMemory::operator=(SealedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SealedMemory::~SealedMemory() {
  if (fd_ >= 0) close(fd_);
}

Result<SealedView> SealedView::open(int fd, size_t least, size_t most, std::string_view what) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return error_of(what, "fstat", errno);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return refused(what, "not a memfd sealed against shrinking");
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes < least) return refused(what, fmt::format("{} bytes are too few", bytes));
  if (bytes > most) return refused(what, fmt::format("{} bytes are too many", bytes));
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return error_of(what, "mmap", errno);
  return SealedView(static_cast<const std::byte*>(mapped), bytes);
}

void SealedView::Unmap::operator()(const std::byte* bytes) const {
  munmap(const_cast<std::byte*>(bytes), size);
}

}  // namespace corro::obs
