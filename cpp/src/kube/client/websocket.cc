#include "kube/client/websocket.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "io/random.h"
#include "kube/client/api_error.h"

namespace corro::kube {
namespace {

constexpr size_t kMostMessageBytes = size_t{1} << 20U;
constexpr size_t kReadBytes = size_t{64} << 10U;
/// Pieces read in one turn: others of the caller's loop want their turn too.
constexpr int kMostPieces = 16;
/// A server that sends pings and reads nothing gets no more answers.
constexpr size_t kMostUnanswered = size_t{1} << 20U;
constexpr Duration kPingInterval = std::chrono::seconds(10);

template <size_t Size>
std::array<uint8_t, Size> random_bytes() {
  std::array<uint8_t, Size> bytes{};
  io::fill_random(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string fresh_key() {
  const auto bytes = random_bytes<16>();
  return encode_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Request request_of(const WebSocketRequest& wanted, const std::string& key) {
  return {.method = "GET",
          .target = wanted.target,
          .headers = {
              // To a client that takes JSON alone, servers say 406.
              {"Accept", "*/*"},
              {"Connection", "Upgrade"},
              {"Upgrade", "websocket"},
              {"Sec-WebSocket-Version", "13"},
              {"Sec-WebSocket-Key", key},
              {"Sec-WebSocket-Protocol", fmt::format("{}", fmt::join(wanted.protocols, ", "))}}};
}

/// Returns the protocol that the server has chosen, if it speaks WebSocket.
Result<std::string> protocol_of(const Headers& answer, const WebSocketRequest& asked,
                                const std::string& key) {
  const auto at = [&](const std::string& name) {
    const auto found = answer.find(name);
    return found == answer.end() ? std::string() : found->second;
  };
  const auto refuse = [&](std::string_view what) {
    return Status(Code::kDataLoss, fmt::format("{}: is no WebSocket: {}", asked.name, what));
  };
  if (::strcasecmp(at("upgrade").c_str(), "websocket") != 0) return refuse("another protocol");
  if (at("sec-websocket-accept") != websocket_accept(key))
    return refuse("the key's answer is wrong");
  if (!at("sec-websocket-extensions").empty()) return refuse("an extension that nobody asked for");
  std::string protocol = at("sec-websocket-protocol");
  if (std::ranges::find(asked.protocols, protocol) == asked.protocols.end()) {
    return refuse(fmt::format("the server chose the protocol \"{}\" and not {}",
                              on_one_line(protocol), fmt::join(asked.protocols, " or ")));
  }
  return protocol;
}

/// Watches the stream, the bell and the alarm.
Result<WebSocket::Waits> make_waits(int stream) {
  CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
  CORRO_ASSIGN(io::EventFd bell, io::EventFd::create());
  CORRO_ASSIGN(io::Alarm alarm, io::Alarm::create());
  for (const int fd : {stream, bell.fd(), alarm.fd()}) CORRO_TRY(epoll.add(fd, EPOLLIN, 0));
  return WebSocket::Waits{std::move(epoll), std::move(bell), std::move(alarm)};
}

}  // namespace

std::string websocket_accept(std::string_view key) {
  const std::string text = std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  std::array<unsigned char, 20> digest{};
  const int is_done =
      EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha1(), nullptr);
  CORRO_CHECK(is_done == 1, text);
  return encode_base64({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

Result<std::unique_ptr<WebSocket>> WebSocket::open(Client& client, const WebSocketRequest& request,
                                                   const Until& until) {
  const std::string key = fresh_key();
  CORRO_ASSIGN(Upgraded upgraded, client.upgrade(request_of(request, key), request.name, until));
  CORRO_ASSIGN(std::string protocol, protocol_of(upgraded.headers, request, key));
  CORRO_ASSIGN(Waits waits, make_waits(upgraded.stream->in()));
  return std::make_unique<WebSocket>(std::move(upgraded.stream), std::move(protocol), request.name,
                                     std::move(waits), until.stop);
}

WebSocket::WebSocket(std::unique_ptr<io::ByteStream> stream, std::string protocol, std::string name,
                     Waits waits, const std::stop_token& stop)
    : stream_(std::move(stream)),
      protocol_(std::move(protocol)),
      name_(std::move(name)),
      waits_(std::move(waits)),
      reader_(kMostMessageBytes, name_),
      piece_(kReadBytes),
      ping_at_(monotonic_now() + kPingInterval),
      stop_(stop),
      on_stop_(stop, [fd = waits_.bell.fd()] { io::EventFd::ring(fd); }) {
  waits_.alarm.set(ping_at_);
  // The first bytes may have come with the answer.
  waits_.bell.ring();
}

void WebSocket::send(std::string_view message) { queue(WebSocketOp::kBinary, message); }

void WebSocket::queue(WebSocketOp op, std::string_view payload) {
  if (is_broken_) return;
  out_ += websocket_frame(op, payload, random_bytes<4>());
  waits_.bell.ring();
}

Status WebSocket::turn(Time until, const Receive& receive) {
  if (!end_.ok()) return end_;
  std::array<epoll_event, 3> ready{};
  const Duration left = std::max(until - monotonic_now(), Duration::zero());
  CORRO_TRY(waits_.epoll.wait(ready, left).status());
  end_ = work(receive);
  return end_;
}

Status WebSocket::work(const Receive& receive) {
  if (stop_.stop_requested()) return {Code::kCancelled, name_ + ": stopped"};
  (void)waits_.bell.drain();
  ping_if_due();
  // In this order: what a write receives by the way, no descriptor tells.
  write();
  Status status = read(receive);
  if (status.ok()) return watch();
  write();  // The answer to a close.
  return status;
}

void WebSocket::ping_if_due() {
  const Time now = monotonic_now();
  if (now < ping_at_) return;
  ping_at_ = now + kPingInterval;
  waits_.alarm.set(ping_at_);
  if (out_.empty()) queue(WebSocketOp::kPing, "");
}

Status WebSocket::read(const Receive& receive) {
  const auto visit = [&](WebSocketOp op, std::string_view payload) {
    return take(op, payload, receive);
  };
  for (int i = 0; i < kMostPieces; ++i) {
    const Result<size_t> got = stream_->read(std::as_writable_bytes(std::span(piece_)));
    if (!got.ok()) return got.status().with_context(name_);
    CORRO_TRY(reader_.feed({piece_.data(), *got}, visit));
    if (*got < piece_.size()) return {};
  }
  waits_.bell.ring();
  return {};
}

Status WebSocket::take(WebSocketOp op, std::string_view payload, const Receive& receive) {
  switch (op) {
    case WebSocketOp::kBinary:
      return receive(payload);
    case WebSocketOp::kPing:
      if (out_.size() < kMostUnanswered) queue(WebSocketOp::kPong, payload);
      return {};
    case WebSocketOp::kPong:
      return {};
    case WebSocketOp::kClose:
      return end_with(payload);
    default:
      return {Code::kDataLoss, name_ + ": a message of text, where bytes are spoken"};
  }
}

/// A close has two bytes of a code and a reason, or nothing. The answer is the code alone.
Status WebSocket::end_with(std::string_view close) {
  queue(WebSocketOp::kClose, close.substr(0, 2));
  if (close.size() < 2) return {Code::kUnavailable, name_ + ": the server closed the connection"};
  const int code = static_cast<uint8_t>(close[0]) << 8 | static_cast<uint8_t>(close[1]);
  const std::string reason = on_one_line(std::string(close.substr(2)));
  return {Code::kUnavailable, fmt::format("{}: the server closed the connection: {}{}{}", name_,
                                          code, reason.empty() ? "" : " ", reason)};
}

/// A write that fails ends nothing: what the server said before it went is still read, and its end
/// behind it.
void WebSocket::write() {
  const Result<size_t> taken = stream_->write(std::as_bytes(std::span(out_)));
  is_broken_ = !taken.ok();
  out_.erase(0, taken.ok() ? *taken : out_.size());
}

Status WebSocket::watch() {
  const bool awaits_room = !is_broken_ && stream_->awaits_room(!out_.empty());
  if (awaits_room == is_watching_room_) return {};
  is_watching_room_ = awaits_room;
  const uint32_t events = awaits_room ? EPOLLIN | EPOLLOUT : EPOLLIN;
  return waits_.epoll.modify(stream_->in(), events, 0);
}

}  // namespace corro::kube
