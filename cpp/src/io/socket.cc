#include "io/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstddef>
#include <cstring>

namespace corro::io {
namespace {

constexpr int kSocketFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr int kProbeSeconds = 1, kProbes = 3;

Status bad_address(std::string_view text) {
  return {
      Code::kInvalidArgument,
      fmt::format(
          "address '{}': expected a numeric address and port such as 127.0.0.1:4711 or [::1]:4711",
          text)};
}

sockaddr_in as_v4(const sockaddr_storage& storage) {
  sockaddr_in v4{};
  std::memcpy(&v4, &storage, sizeof(v4));
  return v4;
}

sockaddr_in6 as_v6(const sockaddr_storage& storage) {
  sockaddr_in6 v6{};
  std::memcpy(&v6, &storage, sizeof(v6));
  return v6;
}

template <typename T>
sockaddr_storage to_storage(const T& address) {
  sockaddr_storage storage{};
  std::memcpy(&storage, &address, sizeof(address));
  return storage;
}

template <typename T>
int set_option(int fd, int level, int name, T value) {
  return setsockopt(fd, level, name, &value, sizeof(value));
}

/// Best effort: kernels that lack it, or do not let this user choose it, keep their default.
void prefer_cubic(int fd) {
  constexpr std::string_view kCubic = "cubic";
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kCubic.data(), static_cast<socklen_t>(kCubic.size()));
}

}  // namespace

SocketAddress SocketAddress::from(const sockaddr_storage& storage) {
  SocketAddress address;
  address.storage_ = storage;
  return address;
}

Result<SocketAddress> SocketAddress::parse_host(std::string_view host, uint16_t port) {
  const std::string_view given = host;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  constexpr size_t kLongest = INET6_ADDRSTRLEN + IF_NAMESIZE + 1;
  if (host.empty() || host.size() > kLongest || host.find('\0') != std::string_view::npos)
    return bad_address(given);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (inet_pton(AF_INET, std::string(host).c_str(), &v4.sin_addr) == 1) return from(to_storage(v4));
  const size_t percent = host.find('%');
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (inet_pton(AF_INET6, std::string(host.substr(0, percent)).c_str(), &v6.sin6_addr) != 1)
    return bad_address(given);
  if (percent != std::string_view::npos) {
    v6.sin6_scope_id = if_nametoindex(std::string(host.substr(percent + 1)).c_str());
    if (v6.sin6_scope_id == 0) return bad_address(given);
  }
  return from(to_storage(v6));
}

Result<SocketAddress> SocketAddress::parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad_address(text);
  const std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  // "::1:80" could be either; only brackets make it clear.
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (!bracketed && host.find(':') != std::string_view::npos) return bad_address(text);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    return bad_address(text);
  auto address = parse_host(host, port);
  if (!address.ok()) return bad_address(text);
  return address;
}

std::string SocketAddress::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (storage_.ss_family == AF_INET) {
    const sockaddr_in v4 = as_v4(storage_);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), port());
  }
  if (storage_.ss_family != AF_INET6) return "unknown address";
  const sockaddr_in6 v6 = as_v6(storage_);
  inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  std::array<char, IF_NAMESIZE> scope{};
  if (v6.sin6_scope_id == 0 || if_indextoname(v6.sin6_scope_id, scope.data()) == nullptr) {
    return fmt::format("[{}]:{}", text.data(), port());
  }
  return fmt::format("[{}%{}]:{}", text.data(), scope.data(), port());
}

std::string SocketAddress::host() const {
  constexpr std::string_view kMapped = "::ffff:";
  const std::string text = to_string();
  if (storage_.ss_family != AF_INET6) return text.substr(0, text.rfind(':'));
  const std::string host = text.substr(1, text.rfind(']') - 1);
  const bool mapped =
      IN6_IS_ADDR_V4MAPPED(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr) != 0;
  return mapped ? host.substr(kMapped.size()) : host;
}

uint16_t SocketAddress::port() const {
  if (storage_.ss_family == AF_INET) return ntohs(as_v4(storage_).sin_port);
  return storage_.ss_family == AF_INET6 ? ntohs(as_v6(storage_).sin6_port) : uint16_t{0};
}

bool SocketAddress::is_loopback() const {
  if (storage_.ss_family == AF_INET)
    return ntohl(as_v4(storage_).sin_addr.s_addr) >> 24U == IN_LOOPBACKNET;
  const sockaddr_in6 v6 = as_v6(storage_);
  return storage_.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

Result<SocketAddress> SocketAddress::parse_listen(std::string_view host) {
  const std::string context = fmt::format("CORRO_LISTEN={}", host);
  auto address = parse_host(host, 0);
  if (!address.ok()) {
    return Status(Code::kInvalidArgument, context + ": expected a numeric address without a port");
  }
  if (address->is_wildcard()) {
    return Status(Code::kInvalidArgument,
                  context + ": name the one address at which the other hosts reach this one");
  }
  return address;
}

bool SocketAddress::is_wildcard() const {
  if (storage_.ss_family == AF_INET) return as_v4(storage_).sin_addr.s_addr == INADDR_ANY;
  const sockaddr_in6 v6 = as_v6(storage_);
  return storage_.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

const sockaddr* SocketAddress::get() const { return reinterpret_cast<const sockaddr*>(&storage_); }

socklen_t SocketAddress::length() const {
  return storage_.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

Result<Fd> listen_tcp(const SocketAddress& address, int backlog) {
  Fd fd(socket(address.get()->sa_family, SOCK_STREAM | kSocketFlags, 0));
  if (!fd.valid()) return status_from_errno("tcp socket", errno);
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd.get(), address.get(), address.length()) != 0 || listen(fd.get(), backlog) != 0) {
    return status_from_errno("listen on " + address.to_string(), errno);
  }
  return fd;
}

Result<Fd> connect_tcp(const SocketAddress& address, const TcpOptions& options) {
  Fd fd(socket(address.get()->sa_family, SOCK_STREAM | kSocketFlags, 0));
  if (!fd.valid()) return status_from_errno("tcp socket", errno);
  CORRO_TRY(configure_tcp(fd.get(), options));
  if (address.is_loopback()) prefer_cubic(fd.get());
  // A signal does not stop a connect that has begun.
  if (connect(fd.get(), address.get(), address.length()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return connection_status("connect to " + address.to_string(), errno);
  }
  return fd;
}

Status configure_tcp(int fd, const TcpOptions& options) {
  // A connection for data has neither time-out nor probes: its kernel would call a rank lost that
  // is only late.
  const bool done =
      set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1) == 0 &&
      (!options.detect_lost_host ||
       (set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1) == 0 &&
        set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kProbeSeconds) == 0 &&
        set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds) == 0 &&
        set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes) == 0 &&
        set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000U * kProbeSeconds * (kProbes + 1)) == 0));
  if (!done) return status_from_errno("tcp socket: set options", errno);
  const auto remote = remote_address(fd);
  if (remote.ok() && remote->is_loopback()) prefer_cubic(fd);
  return {};
}

namespace {

struct UnixAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};

Result<UnixAddress> abstract_address(std::string_view name) {
  constexpr size_t kMaxName = 100;
  if (name.empty() || name.size() > kMaxName || name.find('\0') != std::string_view::npos) {
    return Status(Code::kInvalidArgument,
                  fmt::format("unix socket name '{}': expected 1 to {} bytes", name, kMaxName));
  }
  UnixAddress result;
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

Result<Fd> unix_socket() {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | kSocketFlags, 0));
  if (!fd.valid()) return status_from_errno("unix socket", errno);
  return fd;
}

}  // namespace

Result<Fd> listen_abstract(std::string_view name, int backlog) {
  CORRO_ASSIGN(const UnixAddress address, abstract_address(name));
  CORRO_ASSIGN(Fd fd, unix_socket());
  const auto* raw = reinterpret_cast<const sockaddr*>(&address.address);
  if (bind(fd.get(), raw, address.length) != 0 || listen(fd.get(), backlog) != 0) {
    return status_from_errno(fmt::format("listen on unix socket @{}", name), errno);
  }
  return fd;
}

Result<Fd> connect_abstract(std::string_view name) {
  CORRO_ASSIGN(const UnixAddress address, abstract_address(name));
  CORRO_ASSIGN(Fd fd, unix_socket());
  while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length) !=
         0) {
    if (errno == EINTR) continue;
    return connection_status(fmt::format("connect to unix socket @{}", name), errno);
  }
  return fd;
}

Result<Fd> accept_connection(int listener) {
  while (true) {
    Fd fd(accept4(listener, nullptr, nullptr, kSocketFlags));
    if (fd.valid()) return fd;
    // ECONNABORTED and the network's own errors belong to the connection that was lost, not to the
    // listener.
    constexpr std::array kTransient = {EINTR,     ECONNABORTED, EPROTO,     ENETDOWN,
                                       EHOSTDOWN, EHOSTUNREACH, ENETUNREACH};
    if (std::find(kTransient.begin(), kTransient.end(), errno) != kTransient.end()) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Fd();
    return status_from_errno("accept", errno);
  }
}

Status connect_result(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? Status() : connection_status("connect", error);
}

Status connection_status(std::string_view what, int error_number) {
  constexpr std::array kSilence = {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, ENETDOWN};
  const bool silence = std::find(kSilence.begin(), kSilence.end(), error_number) != kSilence.end();
  const Code code = error_number == ECONNREFUSED ? Code::kUnavailable
                    : silence                    ? Code::kDeadlineExceeded
                                                 : Code::kAborted;
  return {code, status_from_errno(what, error_number).message()};
}

Result<SocketAddress> local_address(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0)
    return status_from_errno("getsockname", errno);
  return SocketAddress::from(storage);
}

Result<SocketAddress> remote_address(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0)
    return status_from_errno("getpeername", errno);
  return SocketAddress::from(storage);
}

Result<PeerCredentials> peer_credentials(int fd) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return status_from_errno("SO_PEERCRED", errno);
  return PeerCredentials{credentials.pid, credentials.uid};
}

namespace {

/// Room for the descriptors of one message, aligned as the kernel wants it.
struct alignas(cmsghdr) ControlBuffer {
  std::array<std::byte, CMSG_SPACE(kMaxPassedDescriptors * sizeof(int))> bytes{};
};

/// Takes over every descriptor in the message, so that none leaks whatever the caller decides.
std::vector<Fd> take_descriptors(msghdr& message) {
  std::vector<Fd> taken;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      taken.emplace_back(fd);
    }
  }
  return taken;
}

}  // namespace

Result<bool> send_message(int fd, BytesView bytes, std::span<const int> descriptors) {
  CORRO_CHECK(descriptors.size() <= kMaxPassedDescriptors, descriptors.size());
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  ControlBuffer control;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  while (true) {
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: descriptors in flight are limited per user; the receivers will take some.
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS)
      return false;
    return Status(Code::kUnavailable, status_from_errno("send", errno).message());
  }
}

Result<size_t> send_some(int fd, BytesView bytes) {
  while (true) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return size_t{0};
    return Status(Code::kUnavailable, status_from_errno("send", errno).message());
  }
}

Received receive_message(int fd, std::span<std::byte> into) {
  Received received;
  iovec piece{into.data(), into.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t got = -1;
  do {
    got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    received.would_block = errno == EAGAIN || errno == EWOULDBLOCK;
    received.closed = !received.would_block;
    received.error = received.closed ? errno : 0;
    return received;
  }
  received.bytes = static_cast<size_t>(got);
  received.descriptors = take_descriptors(message);
  received.truncated = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  received.closed = got == 0 && !into.empty();
  return received;
}

bool wait_ready(int fd, short events, Time deadline) {
  pollfd watched{fd, events, 0};
  while (true) {
    const Duration left = std::max(Duration::zero(), deadline - monotonic_now());
    const int64_t ms =
        std::min<int64_t>(INT_MAX, std::chrono::ceil<std::chrono::milliseconds>(left).count());
    const int count = poll(&watched, 1, static_cast<int>(ms));
    if (count > 0) return true;
    if (count == 0 && monotonic_now() >= deadline) return false;
    if (count < 0 && errno != EINTR) return false;
  }
}

}  // namespace corro::io
