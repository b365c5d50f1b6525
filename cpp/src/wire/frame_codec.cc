#include "wire/frame_codec.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/check.h"

namespace corro::wire {
namespace {

/// First byte of every header: a stream that lost its place is noticed at the next frame.
constexpr uint8_t kMagic = 0xC7;

/// The header as it lies on the wire, little-endian.
struct RawHeader {
  uint8_t magic = kMagic;
  uint8_t kind = 0;
  uint8_t control = 0;
  uint8_t code = 0;
  uint32_t epoch = 0;
  uint64_t op = 0;
  uint32_t step_or_rank = 0;
  uint32_t piece = 0;
  uint64_t length = 0;
  uint64_t offset = 0;
  uint64_t call = 0;
  uint64_t shape = 0;
  uint32_t extras = 0;
  uint16_t element = 0;
  uint16_t reserved = 0;
  uint64_t lane = 0;
};
static_assert(sizeof(RawHeader) == kFrameHeaderBytes);

Status refused(const char* what, uint64_t value) {
  return {Code::kInvalidArgument, fmt::format("frame: {} {} is not valid", what, value)};
}

Status check_piece(const RawHeader& raw) {
  if (raw.piece > kMaxPieceBytes) return refused("piece length", raw.piece);
  if (raw.offset > raw.length) return refused("offset", raw.offset);
  if (raw.piece > raw.length - raw.offset) return refused("piece length", raw.piece);
  // An empty piece moves nothing forward: only an empty message has one.
  if (raw.piece == 0 && raw.length != 0) return refused("piece length", raw.piece);
  return {};
}

}  // namespace

void encode_frame(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out) {
  RawHeader raw{.kind = static_cast<uint8_t>(header.kind),
                .epoch = header.lane.epoch,
                .op = header.op,
                .step_or_rank = header.step,
                .piece = header.piece,
                .length = header.length,
                .offset = header.offset,
                .call = header.signature.call,
                .shape = header.signature.shape,
                .extras = header.signature.extras,
                .element = header.signature.element,
                .lane = header.lane.key};
  if (header.kind == FrameKind::kControl) {
    raw.control = static_cast<uint8_t>(header.control);
    raw.code = header.code;
    raw.step_or_rank = static_cast<uint32_t>(header.rank);
    raw.piece = static_cast<uint32_t>(header.length);
    raw.offset = 0;
  }
  std::memcpy(out.data(), &raw, sizeof(raw));
}

Result<FrameHeader> decode_frame(std::span<const std::byte, kFrameHeaderBytes> raw_bytes,
                                 uint64_t max_message_bytes) {
  RawHeader raw;
  std::memcpy(&raw, raw_bytes.data(), sizeof(raw));
  if (raw.magic != kMagic) return refused("first byte", raw.magic);
  if (raw.reserved != 0) return refused("reserved field", raw.reserved);
  FrameHeader header{.lane = {raw.epoch, raw.lane},
                     .op = raw.op,
                     .length = raw.length,
                     .piece = raw.piece,
                     .offset = raw.offset};
  if (raw.kind == static_cast<uint8_t>(FrameKind::kMessage)) {
    if (raw.control != 0) return refused("control kind of a message", raw.control);
    if (raw.code != 0) return refused("code of a message", raw.code);
    if (raw.length > max_message_bytes) return refused("message length", raw.length);
    CORRO_TRY(check_piece(raw));
    header.step = raw.step_or_rank;
    header.signature = {raw.call, raw.shape, raw.extras, raw.element};
    return header;
  }
  if (raw.kind != static_cast<uint8_t>(FrameKind::kControl)) return refused("kind", raw.kind);
  if (raw.control < static_cast<uint8_t>(ControlKind::kGoodbye) ||
      raw.control > static_cast<uint8_t>(ControlKind::kTimeline)) {
    return refused("control kind", raw.control);
  }
  if (raw.code > static_cast<uint8_t>(Code::kUnauthenticated)) return refused("code", raw.code);
  if (raw.length > kMaxControlText) return refused("control length", raw.length);
  if (raw.piece != raw.length) return refused("piece of a control", raw.piece);
  if (raw.offset != 0) return refused("offset of a control", raw.offset);
  header.kind = FrameKind::kControl;
  header.control = static_cast<ControlKind>(raw.control);
  header.signature = {raw.call, raw.shape, raw.extras, raw.element};
  if (header.control != ControlKind::kVote && header.signature != SignatureBits{})
    return refused("signature of a control", raw.call);
  header.code = raw.code;
  header.rank = static_cast<int32_t>(raw.step_or_rank);
  return header;
}

FrameHeader header_of(const Control& control) {
  CORRO_CHECK(control.text.size() <= kMaxControlText, control.text.size());
  return {.kind = FrameKind::kControl,
          .lane = control.lane,
          .op = control.op,
          .length = control.text.size(),
          .signature = control.signature,
          .control = control.kind,
          .code = control.code,
          .rank = control.rank};
}

Bytes encode_control(const Control& control) {
  const FrameHeader header = header_of(control);
  const auto text_bytes = static_cast<size_t>(header.length);
  Bytes bytes(kFrameHeaderBytes + text_bytes);
  encode_frame(header, std::span(bytes).first<kFrameHeaderBytes>());
  std::memcpy(bytes.data() + kFrameHeaderBytes, control.text.data(), text_bytes);
  return bytes;
}

Control control_from(const FrameHeader& header, std::string text) {
  return {.kind = header.control,
          .code = header.code,
          .lane = header.lane,
          .rank = header.rank,
          .op = header.op,
          .text = std::move(text),
          .signature = header.signature};
}

}  // namespace corro::wire
