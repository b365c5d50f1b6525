#include "table/service/server_connection.h"

#include <utility>

#include "io/socket.h"

namespace corro::table {

Result<bool> ServerConnection::fill(std::span<std::byte> into, size_t& filled) {
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

Status ServerConnection::shake_hands() {
  std::array<std::byte, wire::kHelloBytes> buffer{};
  while (!handshake_->done()) {
    const io::Received received =
        io::receive_message(fd_.get(), std::span(buffer).first(handshake_->wanted()));
    if (received.would_block) return {};
    if (received.closed) return {Code::kUnavailable, "hung up"};
    CORRO_TRY(handshake_->feed(std::span(buffer).first(received.bytes)));
    if (Bytes output = handshake_->take_output(); !output.empty()) {
      CORRO_ASSIGN(const bool sent, io::send_message(fd_.get(), output));
      if (!sent) return {Code::kUnavailable, "takes nothing"};
    }
  }
  is_for_sums_ = handshake_->purpose() == wire::Purpose::kServed;
  if (!is_for_sums_ && handshake_->purpose() != wire::Purpose::kTable)
    return {Code::kInvalidArgument, "wants no table"};
  rank_ = handshake_->peer_rank();
  handshake_.reset();
  send(Bytes(wire::kAdmitted.begin(), wire::kAdmitted.end()));
  return {};
}

Result<std::optional<ServerConnection::Message>> ServerConnection::receive() {
  if (handshake_) {
    CORRO_TRY(shake_hands());
    if (handshake_ || is_for_sums_) return std::optional<Message>();
  }
  if (!arriving_) {
    CORRO_ASSIGN(const bool all, fill(raw_header_, header_filled_));
    if (!all) return std::optional<Message>();
    CORRO_ASSIGN(const Header header, decode_header(raw_header_));
    arriving_.emplace(header, Bytes(header.body));
    body_filled_ = 0;
  }
  CORRO_ASSIGN(const bool all, fill(arriving_->body, body_filled_));
  if (!all) return std::optional<Message>();
  header_filled_ = 0;
  return std::exchange(arriving_, std::nullopt);
}

void ServerConnection::send(Bytes message) {
  unsent_bytes_ += message.size();
  unsent_.push_back(std::move(message));
}

Status ServerConnection::flush() {
  while (!unsent_.empty()) {
    const BytesView rest = BytesView(unsent_.front()).subspan(first_sent_);
    CORRO_ASSIGN(const size_t sent, io::send_some(fd_.get(), rest));
    first_sent_ += sent;
    unsent_bytes_ -= sent;
    if (sent < rest.size()) return {};
    unsent_.pop_front();
    first_sent_ = 0;
  }
  return {};
}

}  // namespace corro::table
