// TcpStream: a Stream over a connected, non-blocking TCP socket.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "io/fd.h"
#include "transport/stream.h"

namespace corro::transport {

/// System calls made so far.
struct TcpCalls {
  uint64_t writes = 0;
  uint64_t reads = 0;
};

/// Loop-confined.
class TcpStream final : public Stream {
 public:
  /// Takes over a connected socket on which io::configure_tcp() has been called.
  explicit TcpStream(io::Fd socket);
  ~TcpStream() override { close(); }

  Moved write(std::span<const iovec> pieces) override;
  Moved read(std::span<const iovec> pieces) override;
  [[nodiscard]] int poll_fd() const override { return socket_.get(); }
  void close() override;
  void close_in_child() override { socket_.reset(); }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] const TcpCalls& calls() const { return calls_; }

 private:
  Moved failed(const char* action, int error_number);

  io::Fd socket_;
  std::string where_;   ///< "tcp 127.0.0.1:4711".
  std::string reason_;  ///< Why it is closed.
  TcpCalls calls_;
};

}  // namespace corro::transport
