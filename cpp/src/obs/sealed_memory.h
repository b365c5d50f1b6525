// Memory that one process writes and others read, also after its end: a memfd of a fixed size, which
// nobody can cut off behind a reader's back. What is in it is the matter of whoever makes it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace corro::obs {

/// The writer's end. Movable; externally synchronized.
class SealedMemory {
 public:
  /// `name`: of the memfd, as /proc/PID/fd shows it; a literal. `what`: begins messages of failures.
  /// All of it is zero. RESOURCE_EXHAUSTED, or what else the kernel says, if there is no memory.
  [[nodiscard]] static Result<SealedMemory> create(const char* name, size_t bytes,
                                                   std::string_view what);
  SealedMemory() = default;
  SealedMemory(SealedMemory&& other) noexcept;
  SealedMemory& operator=(SealedMemory&& other) noexcept;
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;
  /// Closes the descriptor; who shares the bytes keeps them.
  ~SealedMemory();

  /// To be passed on, so that others read. Owned by this.
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] const std::shared_ptr<std::byte>& bytes() const { return bytes_; }

 private:
  int fd_ = -1;
  std::shared_ptr<std::byte> bytes_;  ///< Shared with parts of the writer that may outlive this.
};

/// A reader's end: a read-only view of all of it for the time of one read. Movable.
class SealedView {
 public:
  /// `fd` is borrowed for the call. DATA_LOSS, with `what` in front, unless it is sealed against
  /// shrinking and has `least` to `most` bytes. The bytes in it are foreign.
  [[nodiscard]] static Result<SealedView> open(int fd, size_t least, size_t most,
                                               std::string_view what);

  [[nodiscard]] const std::byte* data() const { return bytes_.get(); }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  struct Unmap {
    size_t size = 0;
    void operator()(const std::byte* bytes) const;
  };
  SealedView(const std::byte* bytes, size_t size) : bytes_(bytes, Unmap{size}), size_(size) {}

  std::unique_ptr<const std::byte, Unmap> bytes_;
  size_t size_;
};

}  // namespace corro::obs
