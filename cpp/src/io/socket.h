// Sockets: TCP over IPv4 and IPv6, and Unix sockets with names outside the file system. All
// non-blocking.
//
//   CORRO_ASSIGN(SocketAddress any, SocketAddress::parse("127.0.0.1:0"));
//   CORRO_ASSIGN(Fd listener, listen_tcp(any));
//   CORRO_ASSIGN(SocketAddress here, local_address(listener.get()));   // "127.0.0.1:40123"
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "io/fd.h"

namespace corro::io {

/// A numeric IPv4 or IPv6 address with a port. Immutable value.
class SocketAddress {
 public:
  /// Reads "127.0.0.1:80", "[::1]:80" or "[fe80::1%eth0]:80". Names are not looked up.
  /// INVALID_ARGUMENT otherwise.
  static Result<SocketAddress> parse(std::string_view text);
  /// Reads an address without a port, with or without brackets.
  static Result<SocketAddress> parse_host(std::string_view host, uint16_t port);
  static SocketAddress from(const sockaddr_storage& storage);
  /// Reads CORRO_LISTEN: one numeric address without a port that others can connect to.
  static Result<SocketAddress> parse_listen(std::string_view host);

  /// "127.0.0.1:80" or "[::1]:80"; parse() reads it back.
  [[nodiscard]] std::string to_string() const;
  /// Without the port and brackets; an IPv4 address that IPv6 carries ("::ffff:10.0.0.1") as such.
  [[nodiscard]] std::string host() const;
  [[nodiscard]] uint16_t port() const;
  [[nodiscard]] bool is_loopback() const;
  /// 0.0.0.0 or ::, which listens everywhere and cannot be connected to from elsewhere.
  [[nodiscard]] bool is_wildcard() const;
  [[nodiscard]] const sockaddr* get() const;
  [[nodiscard]] socklen_t length() const;

 private:
  sockaddr_storage storage_{};
};

struct TcpOptions {
  /// Breaks the connection, mostly with ETIMEDOUT, once the other host's kernel has not answered
  /// for 3 to 4 s: three probes a second apart while nothing is on its way, else 4 s without an
  /// acknowledgement. A kernel answers for a process that is stopped. Only for a connection whose
  /// data is always read: a receive window closed for 4 s breaks it, too.
  bool detect_lost_host = false;
};

/// Listens; port 0 takes a free one.
[[nodiscard]] Result<Fd> listen_tcp(const SocketAddress& address, int backlog = 1024);
/// Starts to connect; the socket becomes writable when it is decided: then call connect_result().
/// Both fail as connection_status() says.
[[nodiscard]] Result<Fd> connect_tcp(const SocketAddress& address, const TcpOptions& options = {});
/// Sets no-delay, what `options` say and, over loopback, the congestion control "cubic" (bbr, the
/// default of some distributions, paces loopback traffic badly). For accepted sockets; connect_tcp
/// does it itself.
[[nodiscard]] Status configure_tcp(int fd, const TcpOptions& options = {});

/// Listens on the abstract Unix name (at most 100 bytes, no leading zero), with message boundaries
/// (SOCK_SEQPACKET). The name vanishes with the last descriptor. Abstract names have no owner:
/// check peer_credentials().
[[nodiscard]] Result<Fd> listen_abstract(std::string_view name, int backlog = 1024);
/// Connects at once, or fails as connection_status() says.
[[nodiscard]] Result<Fd> connect_abstract(std::string_view name);

/// Accepts one connection; an invalid Fd when none waits.
[[nodiscard]] Result<Fd> accept_connection(int listener);
/// OK once a connect_tcp() socket is connected; the reason once it failed.
[[nodiscard]] Status connect_result(int fd);
/// What an errno of connect() or of a connection says. UNAVAILABLE: the other end's kernel says
/// that nobody is there. DEADLINE_EXCEEDED: the other host cannot be reached or does not answer.
/// ABORTED: anything else, such as too many who wait there; try again.
[[nodiscard]] Status connection_status(std::string_view what, int error_number);
[[nodiscard]] Result<SocketAddress> local_address(int fd);
[[nodiscard]] Result<SocketAddress> remote_address(int fd);

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};
/// Who connected to, or listens at, a Unix socket, as the kernel saw it.
[[nodiscard]] Result<PeerCredentials> peer_credentials(int fd);

inline constexpr size_t kMaxPassedDescriptors = 64;

/// What one receive_message() got.
struct Received {
  size_t bytes = 0;
  bool would_block = false;
  bool closed = false;     ///< The peer closed (Unix, TCP) or the connection broke.
  int error = 0;           ///< errno of a connection that broke.
  bool truncated = false;  ///< The message or its descriptors did not fit: drop the connection.
  std::vector<Fd> descriptors;  ///< Close-on-exec.
};

/// Sends one message with descriptors over a Unix socket. False if it does not fit now; UNAVAILABLE
/// if the peer is gone.
[[nodiscard]] Result<bool> send_message(int fd, BytesView bytes,
                                        std::span<const int> descriptors = {});
/// Sends as many leading bytes over a TCP connection as fit now; UNAVAILABLE if the peer is gone.
[[nodiscard]] Result<size_t> send_some(int fd, BytesView bytes);
/// Receives one message (Unix) or what has arrived (TCP) into `into`. Never blocks.
[[nodiscard]] Received receive_message(int fd, std::span<std::byte> into);

/// Blocks until `fd` has one of the poll(2) `events` or the deadline is over; false then.
[[nodiscard]] bool wait_ready(int fd, short events, Time deadline);

}  // namespace corro::io
