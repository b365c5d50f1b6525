#include "table/service/server_link.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "wire/server_number.h"

namespace corro::table {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(20);

}  // namespace

void ServerLink::forget_questions() {
  // What was sent in part has to be sent to its end, or the connection is of no use any more.
  if (sent_bytes_ > 0) go_down({Code::kCancelled, "given up"}, monotonic_now());
  questions_.forget();
}

std::string ServerLink::describe() const {
  return fmt::format("server {} ({})", options_.server, options_.address.to_string());
}

short ServerLink::events() const {
  if (state_ == State::kConnecting) return POLLOUT;
  const bool unsent = state_ == State::kUp && questions_.next() != nullptr;
  return static_cast<short>(POLLIN | (unsent ? POLLOUT : 0));
}

Status ServerLink::advance(Time now) {
  Status status;
  if (state_ == State::kDown && next_try_ <= now) connect(now);
  if (state_ == State::kConnecting) {
    if (!io::wait_ready(fd_.get(), POLLOUT, now)) return lost(now);
    status = io::connect_result(fd_.get());
    nobody_listens_ = status.code() == Code::kUnavailable;
    if (status.ok()) {
      handshake_.emplace(options_.identity, wire::kFirstServer + options_.server, options_.secret,
                         wire::Purpose::kTable);
      state_ = State::kShakingHands;
    }
  }
  if (status.ok() && state_ == State::kShakingHands) status = shake_hands();
  if (status.ok() && state_ == State::kUp) status = exchange();
  if (!status.ok()) go_down(status, now);
  return lost(now);
}

void ServerLink::connect(Time now) {
  if (!down_since_) down_since_ = now;
  auto connecting = io::connect_tcp(options_.address, {.detect_lost_host = true});
  if (!connecting.ok()) return go_down(connecting.status(), now);
  fd_ = std::move(connecting).value();
  state_ = State::kConnecting;
}

Status ServerLink::shake_hands() {
  std::array<std::byte, wire::kChallengeBytes> buffer{};
  while (true) {
    if (const Bytes output = handshake_->take_output(); !output.empty()) {
      CORRO_ASSIGN(const bool sent, io::send_message(fd_.get(), output));
      if (!sent) return {Code::kUnavailable, "takes nothing"};
    }
    if (handshake_->done()) break;
    const io::Received received =
        io::receive_message(fd_.get(), std::span(buffer).first(handshake_->wanted()));
    if (received.would_block) return {};
    if (received.closed) return {Code::kAborted, "hung up during the handshake"};
    CORRO_TRY(handshake_->feed(std::span(buffer).first(received.bytes)));
  }
  handshake_.reset();
  begin();
  return {};
}

/// The server knows nothing of an earlier connection.
void ServerLink::begin() {
  state_ = State::kUp;
  down_since_.reset();
  nobody_listens_ = false;
  sent_bytes_ = 0;
  header_.reset();
  header_filled_ = 0;
  questions_.begin();
}

Status ServerLink::exchange() {
  CORRO_TRY(send());
  return receive();
}

Status ServerLink::send() {
  while (const Bytes* const next = questions_.next()) {
    const BytesView rest = BytesView(*next).subspan(sent_bytes_);
    CORRO_ASSIGN(const size_t sent, io::send_some(fd_.get(), rest));
    sent_bytes_ += sent;
    if (sent < rest.size()) return {};
    questions_.sent();
    sent_bytes_ = 0;
  }
  return {};
}

Result<bool> ServerLink::fill(std::span<std::byte> into, size_t& filled) {
  while (filled < into.size()) {
    const io::Received received = io::receive_message(fd_.get(), into.subspan(filled));
    if (received.would_block) return false;
    if (received.closed)
      return received.error == 0 ? Status(Code::kUnavailable, "hung up")
                                 : io::connection_status({}, received.error);
    filled += received.bytes;
  }
  return true;
}

Status ServerLink::receive() {
  while (true) {
    if (!header_) {
      CORRO_ASSIGN(const bool all, fill(raw_header_, header_filled_));
      if (!all) return {};
      CORRO_ASSIGN(header_, decode_header(raw_header_));
      body_.resize(header_->body);
      body_filled_ = 0;
    }
    CORRO_ASSIGN(const bool all, fill(body_, body_filled_));
    if (!all) return {};
    const Header header = *std::exchange(header_, std::nullopt);
    header_filled_ = 0;
    take(header, body_);
    // All that was asked is answered: what comes next is not there yet.
    if (questions_.empty()) return {};
  }
}

/// News come unasked. An answer to a question that was forgotten is dropped.
void ServerLink::take(const Header& header, BytesView body) {
  if (!questions_.take(header, body) && header.request == 0) options_.on_news(header, body);
}

void ServerLink::go_down(const Status& why, Time now) {
  if (!down_since_) down_since_ = now;
  reason_ = why.message();
  fd_.reset();
  handshake_.reset();
  state_ = State::kDown;
  next_try_ = now + kPause;
}

Status ServerLink::lost(Time now) const {
  if (!down_since_) return {};
  if (now - *down_since_ < (nobody_listens_ ? kGoneAfter : options_.lost_after)) return {};
  return {Code::kUnavailable, fmt::format("{} is lost: {}", describe(), reason_)};
}

}  // namespace corro::table
