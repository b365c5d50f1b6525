// Frames of the WebSocket protocol (RFC 6455), as a client reads and writes them. Pure.
//
//   WebSocketReader reader(1 << 20, "pods default/a: exec");
//   const auto visit = [&](WebSocketOp op, std::string_view payload) {
//     text += payload;
//     return Status();
//   };
//   CORRO_TRY(reader.feed(piece, visit));
//
//   const std::string frame = websocket_frame(WebSocketOp::kBinary, "hello", {1, 2, 3, 4});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace corro::kube {

/// The numbers of RFC 6455, section 5.2.
enum class WebSocketOp : uint8_t {
  kContinuation = 0,  ///< Further frames of a message; a reader's visitor never gets it.
  kText = 1,
  kBinary = 2,
  kClose = 8,
  kPing = 9,
  kPong = 10,
};

/// Of a close, a ping or a pong.
inline constexpr size_t kMostControlBytes = 125;

/// Reads what a server sends and puts the frames of a message together. Loop-confined. Keeps at
/// most one message of `most_message_bytes` and one control frame.
class WebSocketReader {
 public:
  /// `name` begins each message of a failure.
  WebSocketReader(size_t most_message_bytes, std::string name)
      : most_(most_message_bytes), name_(std::move(name)) {}

  using Visit = std::function<Status(WebSocketOp op, std::string_view payload)>;
  /// Takes bytes and visits every whole message and control frame that ends in them, in order; a
  /// control frame may come between the frames of a message. RESOURCE_EXHAUSTED for a message over
  /// the bound; DATA_LOSS for bytes that no server may send; what `visit` returns if it fails.
  /// After a failure nothing more may be fed.
  [[nodiscard]] Status feed(std::string_view piece, const Visit& visit);

 private:
  [[nodiscard]] size_t head_bytes() const;
  [[nodiscard]] uint64_t payload_bytes() const;
  [[nodiscard]] bool is_control() const { return (static_cast<uint8_t>(op_) & 8U) != 0; }
  [[nodiscard]] Status begin_frame();
  [[nodiscard]] Status check_head() const;
  [[nodiscard]] Status end_frame(const Visit& visit);
  [[nodiscard]] Status refuse(std::string_view what) const;

  const size_t most_;
  const std::string name_;
  std::string head_;  ///< Of the frame, as far as it has come.
  bool has_head_ = false;
  uint64_t left_ = 0;            ///< Bytes of the frame's payload that have not come.
  WebSocketOp op_ = {};          ///< Of the frame.
  bool is_last_ = false;         ///< The frame is its message's last.
  WebSocketOp message_op_ = {};  ///< kContinuation: no message has begun.
  std::string message_;
  std::string control_;
};

/// Writes one whole message or control frame. `mask` has to be fresh and unpredictable for each
/// frame (section 5.3).
[[nodiscard]] std::string websocket_frame(WebSocketOp op, std::string_view payload,
                                          const std::array<uint8_t, 4>& mask);

}  // namespace corro::kube
