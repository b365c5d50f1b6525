// Writes to the screen from a thread of its own, so that a slow or stopped terminal never stops the
// launcher from watching its workers.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/status.h"
#include "io/event.h"

namespace corro::screen {

/// Writes all bytes, blocking; false if the descriptor takes no more for ever.
[[nodiscard]] bool write_all(int fd, std::string_view bytes);

/// write(), full() and flush() are for one thread, the launcher's loop. Bytes are written in order;
/// a descriptor that can no longer be written to (the reader of a pipe has gone) is given up.
class ScreenWriter {
 public:
  /// Above this the loop should read no more from its workers until room_fd() is readable.
  static constexpr size_t kFullBytes = 1U << 20U;

  static Result<std::unique_ptr<ScreenWriter>> create();
  /// Waits until the thread has written what it had begun: flush() first.
  ~ScreenWriter();

  void write(int fd, std::string bytes);
  [[nodiscard]] bool full() const { return queued_bytes_.load() > kFullBytes; }
  /// Becomes readable when the queue is no longer full, and when it has run empty.
  [[nodiscard]] const io::EventFd& room() const { return room_; }
  [[nodiscard]] bool empty() const { return queued_bytes_.load() == 0; }

 private:
  struct Piece {
    int fd = -1;
    std::string bytes;
  };
  explicit ScreenWriter(io::EventFd room);
  void run();

  io::EventFd room_;
  Guarded<std::deque<Piece>> queue_;
  std::atomic<size_t> queued_bytes_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace corro::screen
