// ByteStream: bytes both ways, whatever carries them: a socket, two pipes, TLS over a socket.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"
#include "base/status.h"

namespace corro::io {

/// Never blocks. Loop-confined. SIGPIPE has to be ignored.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  /// Takes what is there, at most as much as fits; fewer bytes than that: there is no more now.
  /// UNAVAILABLE: nothing comes any more. Any other failure says why that is so.
  [[nodiscard]] virtual Result<size_t> read(std::span<std::byte> into) = 0;
  /// Sends the first of these bytes, as many as there is room for. What was not taken has to be
  /// given again, first. Fails as read() does.
  [[nodiscard]] virtual Result<size_t> write(BytesView bytes) = 0;

  /// The descriptors that epoll watches; the same one where one serves both ways.
  [[nodiscard]] virtual int in() const = 0;
  [[nodiscard]] virtual int out() const = 0;
  /// Whether it goes on once out() takes bytes. `unsent`: there is something to write().
  [[nodiscard]] virtual bool awaits_room(bool unsent) const { return unsent; }
};

}  // namespace corro::io
