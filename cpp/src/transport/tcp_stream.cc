#include "transport/tcp_stream.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>

#include "io/socket.h"

namespace corro::transport {
namespace {

bool would_block(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
}

msghdr message_of(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());  // The kernel does not change it.
  message.msg_iovlen = pieces.size();
  return message;
}

/// Takes unread bytes out of the socket: closing with some left would reset the connection, and the
/// peer could lose the last bytes sent to it.
void discard_unread(int socket) {
  constexpr int kRounds = 64;  // A peer that never stops sending is cut off.
  std::array<std::byte, 16384> scrap;
  for (int round = 0; round < kRounds; ++round) {
    if (recv(socket, scrap.data(), scrap.size(), MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace

TcpStream::TcpStream(io::Fd socket) : socket_(std::move(socket)) {
  const auto remote = io::remote_address(socket_.get());
  where_ = "tcp " + (remote.ok() ? remote.value().to_string() : std::string("unknown address"));
}

Moved TcpStream::write(std::span<const iovec> pieces) {
  if (!socket_.valid()) return {.bytes = 0, .closed = true};
  const msghdr message = message_of(pieces);
  ++calls_.writes;
  const ssize_t bytes = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (bytes < 0) return failed("sending", errno);
  return {.bytes = static_cast<size_t>(bytes), .closed = false};
}

Moved TcpStream::read(std::span<const iovec> pieces) {
  if (!socket_.valid()) return {.bytes = 0, .closed = true};
  msghdr message = message_of(pieces);
  ++calls_.reads;
  const ssize_t bytes = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (bytes < 0) return failed("receiving", errno);
  if (bytes == 0) {
    const bool asked = std::any_of(pieces.begin(), pieces.end(),
                                   [](const iovec& piece) { return piece.iov_len > 0; });
    if (!asked) return {};
    if (reason_.empty()) reason_ = "closed by the peer";
    return {.bytes = 0, .closed = true};
  }
  return {.bytes = static_cast<size_t>(bytes), .closed = false};
}

Moved TcpStream::failed(const char* action, int error_number) {
  if (would_block(error_number)) return {};
  if (reason_.empty()) {
    reason_ = fmt::format("{}: {}", action, std::generic_category().message(error_number));
  }
  return {.bytes = 0, .closed = true};
}

void TcpStream::close() {
  if (!socket_.valid()) return;
  shutdown(socket_.get(), SHUT_WR);
  discard_unread(socket_.get());
  socket_.reset();
  if (reason_.empty()) reason_ = "closed here";
}

std::string TcpStream::describe() const {
  return reason_.empty() ? where_ : where_ + ": " + reason_;
}

}  // namespace corro::transport
