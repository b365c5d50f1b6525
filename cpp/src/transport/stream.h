// Stream: a bidirectional byte stream to one peer that never blocks. What a transport implements.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

#include "transport/doorbell.h"

namespace corro::transport {

/// Bytes of all pieces together.
[[nodiscard]] inline size_t total_size(std::span<const iovec> pieces) {
  size_t size = 0;
  for (const iovec& piece : pieces) size += piece.iov_len;
  return size;
}

/// What one read or write moved. `closed` means the peer is gone; Stream::describe() says why.
struct Moved {
  size_t bytes = 0;
  bool closed = false;
};

/// Loop-confined: used by the thread that holds the engine's baton. Implementations: ShmStream,
/// TcpStream, MemoryStream (tests). The conformance suite (stream_conformance.h) is the contract.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Takes as many leading bytes of `pieces` as fit now; 0 bytes and not closed means "full, try
  /// later".
  [[nodiscard]] virtual Moved write(std::span<const iovec> pieces) = 0;
  /// Fills the leading bytes of `pieces` with what has arrived; bytes sent before a close are still
  /// delivered.
  [[nodiscard]] virtual Moved read(std::span<const iovec> pieces) = 0;
  /// A descriptor that becomes readable (edge-triggered epoll) when read() or write() may move
  /// again, or -1 when the peer rings this process's doorbell instead.
  [[nodiscard]] virtual int poll_fd() const = 0;
  /// For a stream without poll_fd(): how to wake the peer, called before anything is written.
  /// Others ignore it.
  virtual void set_doorbell(const Doorbell& /*bell*/) {}
  /// Closes this side; the peer reads what is in flight and then sees `closed`. Idempotent.
  virtual void close() = 0;
  /// In a forked child: closes its descriptors without a word. Nothing else may be called after it.
  virtual void close_in_child() {}
  /// One line: how and where the peer is reached and, once closed, why ("tcp 127.0.0.1:4711:
  /// connection reset").
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace corro::transport
