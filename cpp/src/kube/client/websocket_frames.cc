// A frame is two bytes, the length of its payload in none, two or eight more, and the payload.
// Four bytes of a mask are before a client's payload, and a server may send none:
//
//   byte 0   1 bit: last of its message; 3 bits: zero; 4 bits: op
//   byte 1   1 bit: masked; 7 bits: length, or 126 (two bytes follow), or 127 (eight bytes follow)
//
// A message is one frame with an op and any number of continuations, the last of which says so.
#include "kube/client/websocket_frames.h"

#include <fmt/format.h>

#include <algorithm>

namespace corro::kube {
namespace {

constexpr uint8_t kLastBit = 0x80;
constexpr uint8_t kMaskBit = 0x80;
constexpr uint8_t kLengthBits = 0x7F;
constexpr uint8_t kTwoBytes = 126;
constexpr uint8_t kEightBytes = 127;

/// The number that these bytes are, the highest first.
uint64_t number_of(std::string_view bytes) {
  uint64_t number = 0;
  for (const char c : bytes) number = number << 8U | static_cast<uint8_t>(c);
  return number;
}

void append_number(std::string& text, uint64_t number, size_t bytes) {
  for (size_t i = bytes; i > 0; --i) text += static_cast<char>(number >> (8 * (i - 1)));
}

bool is_known(WebSocketOp op) {
  return op <= WebSocketOp::kBinary || (op >= WebSocketOp::kClose && op <= WebSocketOp::kPong);
}

}  // namespace

Status WebSocketReader::refuse(std::string_view what) const {
  return {Code::kDataLoss, fmt::format("{}: is no WebSocket: {}", name_, what)};
}

/// How long the head is, as far as it tells yet.
size_t WebSocketReader::head_bytes() const {
  if (head_.size() < 2) return 2;
  const uint8_t length = static_cast<uint8_t>(head_[1]) & kLengthBits;
  return length == kTwoBytes ? 4 : length == kEightBytes ? 10 : 2;
}

uint64_t WebSocketReader::payload_bytes() const {
  if (head_.size() > 2) return number_of(std::string_view(head_).substr(2));
  return static_cast<uint8_t>(head_[1]) & kLengthBits;
}

Status WebSocketReader::feed(std::string_view piece, const Visit& visit) {
  while (!piece.empty()) {
    std::string& into = !has_head_ ? head_ : is_control() ? control_ : message_;
    const uint64_t wanted = has_head_ ? left_ : head_bytes() - head_.size();
    const auto part = piece.substr(0, std::min<uint64_t>(wanted, piece.size()));
    into += part;
    piece.remove_prefix(part.size());
    if (has_head_) left_ -= part.size();
    if (!has_head_ && head_.size() == head_bytes()) CORRO_TRY(begin_frame());
    if (has_head_ && left_ == 0) CORRO_TRY(end_frame(visit));
  }
  return {};
}

Status WebSocketReader::begin_frame() {
  has_head_ = true;
  is_last_ = (static_cast<uint8_t>(head_[0]) & kLastBit) != 0;
  op_ = static_cast<WebSocketOp>(static_cast<uint8_t>(head_[0]) & 0x0FU);
  left_ = payload_bytes();
  CORRO_TRY(check_head());
  if (!is_control() && op_ != WebSocketOp::kContinuation) message_op_ = op_;
  return {};
}

Status WebSocketReader::check_head() const {
  if ((static_cast<uint8_t>(head_[0]) & 0x70U) != 0)
    return refuse("a bit that must be zero is set");
  if (!is_known(op_)) return refuse("a frame of a kind that is not known");
  if ((static_cast<uint8_t>(head_[1]) & kMaskBit) != 0) return refuse("a server's frame is masked");
  const bool is_short =
      (head_.size() == 4 && left_ < kTwoBytes) || (head_.size() == 10 && left_ <= UINT16_MAX);
  if (is_short) return refuse("a short length in the form of a long one");
  if (is_control()) {
    return is_last_ && left_ <= kMostControlBytes ? Status()
                                                  : refuse("a control frame that is long or cut");
  }
  const bool is_inside = message_op_ != WebSocketOp::kContinuation;
  if (is_inside != (op_ == WebSocketOp::kContinuation)) {
    return refuse(is_inside ? "a message inside of another one" : "a part of no message");
  }
  if (left_ > most_ - message_.size()) {
    return {Code::kResourceExhausted,
            fmt::format("{}: a message of more than {} bytes is refused", name_, most_)};
  }
  return {};
}

Status WebSocketReader::end_frame(const Visit& visit) {
  has_head_ = false;
  head_.clear();
  if (is_control()) {
    CORRO_TRY(visit(op_, control_));
    control_.clear();
  } else if (is_last_) {
    CORRO_TRY(visit(std::exchange(message_op_, WebSocketOp::kContinuation), message_));
    message_.clear();
  }
  return {};
}

std::string websocket_frame(WebSocketOp op, std::string_view payload,
                            const std::array<uint8_t, 4>& mask) {
  std::string frame;
  frame.reserve(payload.size() + 14);
  frame += static_cast<char>(kLastBit | static_cast<uint8_t>(op));
  const size_t bytes = payload.size();
  const bool is_two = bytes >= kTwoBytes && bytes <= UINT16_MAX;
  const size_t kind = bytes < kTwoBytes ? bytes : is_two ? kTwoBytes : kEightBytes;
  frame += static_cast<char>(kMaskBit | kind);
  if (bytes >= kTwoBytes) append_number(frame, bytes, is_two ? 2 : 8);
  for (const uint8_t byte : mask) frame += static_cast<char>(byte);
  for (size_t i = 0; i < bytes; ++i) {
    frame += static_cast<char>(static_cast<uint8_t>(payload[i]) ^ mask[i % mask.size()]);
  }
  return frame;
}

}  // namespace corro::kube
