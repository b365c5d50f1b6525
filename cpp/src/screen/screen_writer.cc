#include "screen/screen_writer.h"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>

namespace corro::screen {
namespace {

/// Lines are written together up to this: a system call for each would cost more than the line.
constexpr size_t kMostTogether = size_t{64} << 10U;

}  // namespace

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    // Somebody who shares the terminal has made it non-blocking.
    pollfd wait{.fd = fd, .events = POLLOUT, .revents = 0};
    poll(&wait, 1, -1);
  }
  return true;
}

Result<std::unique_ptr<ScreenWriter>> ScreenWriter::create() {
  CORRO_ASSIGN(io::EventFd room, io::EventFd::create());
  return std::unique_ptr<ScreenWriter>(new ScreenWriter(std::move(room)));
}

ScreenWriter::ScreenWriter(io::EventFd room) : room_(std::move(room)), thread_([this] { run(); }) {}

ScreenWriter::~ScreenWriter() {
  stop_ = true;
  queue_.notify_all();
  thread_.join();
}

void ScreenWriter::write(int fd, std::string bytes) {
  if (bytes.empty()) return;
  queued_bytes_ += bytes.size();
  {
    auto queue = queue_.lock();
    const bool goes_on = !queue->empty() && queue->back().fd == fd;
    if (goes_on && queue->back().bytes.size() + bytes.size() <= kMostTogether) {
      queue->back().bytes += bytes;
      return;  // The thread has not got to that piece, and will.
    }
    queue->push_back({fd, std::move(bytes)});
  }
  queue_.notify_all();
}

void ScreenWriter::run() {
  prctl(PR_SET_NAME, "screen");
  std::set<int> gone;
  while (!stop_) {
    Piece piece;
    {
      auto queue = queue_.lock();
      if (queue->empty()) {
        queue.wait_for(std::chrono::seconds(1));
        continue;
      }
      piece = std::move(queue->front());
      queue->pop_front();
    }
    if (!gone.contains(piece.fd) && !write_all(piece.fd, piece.bytes)) gone.insert(piece.fd);
    const bool was_full = full();
    const size_t left = queued_bytes_.fetch_sub(piece.bytes.size()) - piece.bytes.size();
    if ((was_full && left <= kFullBytes) || left == 0) room_.ring();
  }
}

}  // namespace corro::screen
