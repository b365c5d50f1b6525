#include "transport/mesh_dialer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/socket.h"
#include "transport/shm_stream.h"
#include "transport/tcp_stream.h"

namespace corro::transport {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(5);
constexpr Duration kLongestPause = std::chrono::milliseconds(500);
/// A TCP connection that the network neither makes nor refuses in this time is tried again. For
/// liveness the kernel gives up before that (io::TcpOptions::detect_lost_host).
constexpr Duration kConnectPatience = std::chrono::seconds(5);

}  // namespace

Time Dialer::next_start() const {
  if (state_ == State::kPaused) return next_start_;
  return state_ == State::kConnecting ? attempt_ends_ : Time::never();
}

Status Dialer::start_if_due(Time now) {
  if (state_ == State::kConnecting && attempt_ends_ <= now) try_later(now, "no connection");
  if (state_ != State::kPaused || next_start_ > now) return {};
  failure_ = Code::kOk;
  return over_tcp_ ? dial_tcp(now) : dial_local(now);
}

Status Dialer::on_event(Time now) {
  if (state_ == State::kPaused || state_ == State::kDone) return {};
  return over_tcp_ ? on_tcp(now) : on_local(now);
}

void Dialer::hang_up() {
  if (!socket_.valid()) return;
  epoll_.remove(socket_.get());
  // The other side may have accepted it, and takes who leaves without a word for a stranger.
  if (over_tcp_ && state_ == State::kConnecting) (void)introduce();
  socket_.reset();
}

/// Says who dials. False if it cannot be said now.
bool Dialer::introduce() {
  handshake_.emplace(identity_of(options_), peer_, *options_.secret, purpose_);
  return send_output();
}

void Dialer::try_later(Time now, std::string reason, Code failure) {
  hang_up();
  stream_.reset();
  handshake_.reset();
  state_ = State::kPaused;
  reason_ = std::move(reason);
  failure_ = failure;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  next_start_ = now + pause_;
}

Status Dialer::dial_local(Time now) {
  auto connected = io::connect_abstract(place_.record.unix_name);
  if (!connected.ok()) {
    try_later(now, connected.status().message(), connected.status().code());
    return {};
  }
  socket_ = std::move(connected).value();
  const auto listener = io::peer_credentials(socket_.get());
  if (!listener.ok() || listener->uid != geteuid()) {
    try_later(now, "its socket belongs to another user");
    return {};
  }
  const std::string peer = fmt::format("rank {} (pid {})", peer_, place_.record.pid);
  ShmCreated created;
  std::vector<int> descriptors;
  if (purpose_ == wire::Purpose::kStream) {
    CORRO_ASSIGN(created, ShmStream::create({}, peer));
    stream_ = std::move(created.stream);
    descriptors = {created.fd};
  }
  const auto sent =
      send_local_hello(options_, socket_.get(), peer_, purpose_, std::move(descriptors));
  if (!sent.ok() || !*sent) {
    try_later(now, "its socket takes no message");
    return {};
  }
  state_ = State::kShakingHands;
  return epoll_.add(socket_.get(), EPOLLIN,
                    Admission::kFirstForeign + static_cast<uint64_t>(peer_));
}

Status Dialer::on_local(Time now) {
  auto greeting = receive_local_hello(options_, socket_.get());
  if (greeting.ok() && !greeting->has_value()) return {};
  if (!greeting.ok() || (*greeting)->from != peer_ || (*greeting)->purpose != purpose_) {
    try_later(now, greeting.ok() ? "another rank answered" : greeting.status().message());
    return {};
  }
  epoll_.remove(socket_.get());
  joined_ = JoinedPeer{.rank = peer_,
                       .purpose = purpose_,
                       .local = true,
                       .stream = std::move(stream_),
                       .socket = {}};
  if (purpose_ != wire::Purpose::kStream) joined_->socket = std::move(socket_);
  socket_.reset();
  state_ = State::kDone;
  return {};
}

Status Dialer::dial_tcp(Time now) {
  if (!place_.tcp) {
    try_later(now, "it does not listen on TCP: does it take this host for its own?");
    return {};
  }
  auto connecting =
      io::connect_tcp(*place_.tcp, {.detect_lost_host = purpose_ == wire::Purpose::kLiveness});
  if (!connecting.ok()) {
    try_later(now, connecting.status().message(), connecting.status().code());
    return {};
  }
  socket_ = std::move(connecting).value();
  state_ = State::kConnecting;
  attempt_ends_ = now + kConnectPatience;
  return epoll_.add(socket_.get(), EPOLLOUT,
                    Admission::kFirstForeign + static_cast<uint64_t>(peer_));
}

Status Dialer::on_connected(Time now) {
  const Status connected = io::connect_result(socket_.get());
  if (!connected.ok()) {
    nobody_listens_ = connected.code() == Code::kUnavailable;
    const bool elsewhere = options_.local != LocalTransport::kTcp && place_.tcp->is_loopback();
    const char* hint = elsewhere ? " (a loopback address: set CORRO_LISTEN on its host)" : "";
    try_later(now, fmt::format("{}: {}{}", place_.tcp->to_string(), connected.message(), hint),
              connected.code());
    return {};
  }
  if (!introduce()) {
    try_later(now, place_.tcp->to_string() + ": hung up");
    return {};
  }
  state_ = State::kShakingHands;
  return epoll_.modify(socket_.get(), EPOLLIN,
                       Admission::kFirstForeign + static_cast<uint64_t>(peer_));
}

bool Dialer::send_output() {
  const Bytes output = handshake_->take_output();
  if (output.empty()) return true;
  // The buffer of a connection that has sent next to nothing has room for this.
  const auto sent = io::send_message(socket_.get(), output);
  return sent.ok() && *sent;
}

Status Dialer::on_tcp(Time now) {
  if (state_ == State::kConnecting) return on_connected(now);
  std::array<std::byte, wire::kChallengeBytes> buffer{};
  while (!handshake_->done()) {
    const io::Received received =
        io::receive_message(socket_.get(), std::span(buffer).first(handshake_->wanted()));
    if (received.would_block) return {};
    const std::string where = place_.tcp->to_string();
    if (received.closed) {
      const Code failure = io::connection_status({}, received.error).code();
      try_later(now, where + ": hung up during the handshake: another job or another secret?",
                failure);
      return {};
    }
    const Status fed = handshake_->feed(std::span(buffer).first(received.bytes));
    if (!fed.ok() || !send_output()) {
      try_later(now, fed.ok() ? where + ": hung up" : fmt::format("{}: {}", where, fed.message()));
      return {};
    }
  }
  epoll_.remove(socket_.get());
  joined_ = JoinedPeer{
      .rank = peer_, .purpose = purpose_, .local = false, .stream = nullptr, .socket = {}};
  if (purpose_ == wire::Purpose::kStream) {
    joined_->stream = std::make_unique<TcpStream>(std::move(socket_));
  } else {
    joined_->socket = std::move(socket_);
  }
  state_ = State::kDone;
  return {};
}

}  // namespace corro::transport
