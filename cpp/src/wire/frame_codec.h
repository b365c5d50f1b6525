// The header in front of everything that travels on a data connection after the handshake. Byte
// table: docs/wire.md.
//
// A message longer than kMaxPieceBytes travels in several frames ("pieces") with the same key, in
// order of their offset; pieces of other messages and control frames may stand between them. So a
// flow control frame never waits behind more than one piece. The text of a control frame is one
// piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/signature_bits.h"
#include "base/status.h"
#include "wire/frame.h"

namespace corro::wire {

inline constexpr size_t kFrameHeaderBytes = 72;
inline constexpr uint32_t kMaxPieceBytes = 256U << 10U;

enum class FrameKind : uint8_t { kMessage = 1, kControl = 2 };

/// What stands in front of a payload. Fields that the kind does not use are not sent.
struct FrameHeader {
  FrameKind kind = FrameKind::kMessage;
  LaneKey lane = {};
  uint64_t op = 0;
  uint64_t length = 0;           ///< Bytes of the whole message, or of the control's text.
  uint32_t step = 0;             ///< Message: tag of the schedule step.
  SignatureBits signature = {};  ///< Message, vote: what the sender believes the operation to be.
  ControlKind control = ControlKind::kGoodbye;
  uint8_t code = 0;     ///< Control: a corro::Code.
  int32_t rank = -1;    ///< Control.
  uint32_t piece = 0;   ///< Message: payload bytes behind this header. Control: length.
  uint64_t offset = 0;  ///< Message: where this piece starts in it. Control: 0.
};

/// Writes the header's bytes.
void encode_frame(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out);

/// Reads a header from foreign bytes: INVALID_ARGUMENT for a wrong magic, an unknown kind, a field
/// that must be zero, a piece that is too long, empty or outside its message, a message above
/// `max_message_bytes` or a control text above kMaxControlText.
[[nodiscard]] Result<FrameHeader> decode_frame(
    std::span<const std::byte, kFrameHeaderBytes> raw_bytes, uint64_t max_message_bytes);

/// Returns the header of a control frame, whose text has at most kMaxControlText bytes.
[[nodiscard]] FrameHeader header_of(const Control& control);

/// Returns header and text of a control frame.
[[nodiscard]] Bytes encode_control(const Control& control);

/// Puts a decoded control header and the text behind it together.
[[nodiscard]] Control control_from(const FrameHeader& header, std::string text);

}  // namespace corro::wire
