// Fd: owns a file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace corro::io {

/// Closes the descriptor it owns when it goes away. Move-only; externally synchronized.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  /// Borrows the descriptor; -1 if there is none.
  [[nodiscard]] int get() const { return fd_; }
  /// Gives the descriptor away; the caller closes it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  /// Closes what is held and takes over `fd`.
  void reset(int fd = -1) {
    const int old = std::exchange(fd_, fd);
    // Linux has freed the number even where close() reports EINTR: never retried.
    if (old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace corro::io
