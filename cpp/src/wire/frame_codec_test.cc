#include "wire/frame_codec.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

namespace corro::wire {
namespace {

using Raw = std::array<std::byte, kFrameHeaderBytes>;
constexpr uint64_t kCap = 1ULL << 40U;

Raw encoded(const FrameHeader& header) {
  Raw raw{};
  encode_frame(header, raw);
  return raw;
}

Raw message() {
  return encoded({.lane = {.epoch = 0x01020304, .key = 0x5152535455565758},
                  .op = 0x1112131415161718,
                  .length = 5,
                  .step = 9,
                  .signature = {.call = 0x2122232425262728,
                                .shape = 0x3132333435363738,
                                .extras = 0x41424344,
                                .element = 0x6162},
                  .piece = 3,
                  .offset = 2});
}

Raw with_byte(Raw raw, size_t at, uint8_t value) {
  raw.at(at) = std::byte{value};
  return raw;
}

TEST(Frame, MessageReadsBackAsWritten) {
  const FrameHeader header = decode_frame(message(), kCap).value();
  EXPECT_EQ(header.kind, FrameKind::kMessage);
  EXPECT_EQ(header.lane.epoch, 0x01020304U);
  EXPECT_EQ(header.lane.key, 0x5152535455565758U);
  EXPECT_EQ(header.op, 0x1112131415161718U);
  EXPECT_EQ(header.length, 5U);
  EXPECT_EQ(header.step, 9U);
  EXPECT_EQ(header.signature.call, 0x2122232425262728U);
  EXPECT_EQ(header.signature.shape, 0x3132333435363738U);
  EXPECT_EQ(header.signature.extras, 0x41424344U);
  EXPECT_EQ(header.signature.element, 0x6162U);
  EXPECT_EQ(header.piece, 3U);
  EXPECT_EQ(header.offset, 2U);
}

TEST(Frame, BytesAreThoseOfTheDocument) {
  const std::array<uint8_t, kFrameHeaderBytes> want = {
      0xC7, 1,    0,    0,                              // magic, kind, control, code
      4,    3,    2,    1,                              // epoch
      0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,   // op
      9,    0,    0,    0,                              // step
      3,    0,    0,    0,                              // piece
      5,    0,    0,    0,    0,    0,    0,    0,      // length
      2,    0,    0,    0,    0,    0,    0,    0,      // offset
      0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,   // call
      0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,   // shape
      0x44, 0x43, 0x42, 0x41, 0x62, 0x61, 0,    0,      // extras, element, reserved
      0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51};  // lane
  const Raw raw = message();
  EXPECT_EQ(std::memcmp(raw.data(), want.data(), want.size()), 0);
}

TEST(Frame, ControlReadsBackAsWritten) {
  const Control sent{.kind = ControlKind::kCancel,
                     .code = 3,
                     .lane = {0, 2},
                     .rank = -1,
                     .op = 77,
                     .text = "rank 3: 4 not 5"};
  const Bytes bytes = encode_control(sent);
  const auto header = decode_frame(std::span(bytes).first<kFrameHeaderBytes>(), 0).value();
  ASSERT_EQ(header.length, bytes.size() - kFrameHeaderBytes);
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + kFrameHeaderBytes;
  const Control got = control_from(header, std::string(text, header.length));
  EXPECT_EQ(got.kind, sent.kind);
  EXPECT_EQ(got.code, sent.code);
  EXPECT_EQ(got.lane, sent.lane);
  EXPECT_EQ(got.rank, sent.rank);
  EXPECT_EQ(got.op, sent.op);
  EXPECT_EQ(got.text, sent.text);
}

TEST(Frame, AControlTextIsNeverCut) {
  const Bytes bytes = encode_control({.text = std::string(kMaxControlText, 'x')});
  EXPECT_EQ(bytes.size(), kFrameHeaderBytes + kMaxControlText);
  EXPECT_TRUE(decode_frame(std::span(bytes).first<kFrameHeaderBytes>(), 0).ok());
  EXPECT_THROW((void)encode_control({.text = std::string(kMaxControlText + 1, 'x')}),
               ContractError);
}

TEST(Frame, AReasonForPeopleShowsThatItWasCut) {
  EXPECT_EQ(reason_text("rank 3 was lost"), "rank 3 was lost");
  const std::string cut = reason_text(std::string(kMaxControlText + 1, 'x'));
  EXPECT_EQ(cut.size(), kMaxReason);
  EXPECT_TRUE(cut.ends_with("x..."));
}

TEST(Frame, LengthsAboveTheCapAreRefused) {
  EXPECT_TRUE(decode_frame(encoded({.length = 100, .piece = 1}), 100).ok());
  EXPECT_FALSE(decode_frame(encoded({.length = 101, .piece = 1}), 100).ok());
  EXPECT_FALSE(
      decode_frame(encoded({.length = std::numeric_limits<uint64_t>::max(), .piece = 1}), kCap)
          .ok());
  EXPECT_FALSE(
      decode_frame(encoded({.kind = FrameKind::kControl, .length = kMaxControlText + 1}), kCap)
          .ok());
}

TEST(Frame, PiecesOutsideTheirMessageAreRefused) {
  const auto accepted = [](uint64_t length, uint64_t offset, uint32_t piece) {
    return decode_frame(encoded({.length = length, .piece = piece, .offset = offset}), kCap).ok();
  };
  EXPECT_TRUE(accepted(0, 0, 0));
  EXPECT_TRUE(accepted(kMaxPieceBytes, 0, kMaxPieceBytes));
  EXPECT_TRUE(accepted(10, 9, 1));
  EXPECT_FALSE(accepted(kMaxPieceBytes + 1, 0, kMaxPieceBytes + 1)) << "longer than a piece";
  EXPECT_FALSE(accepted(10, 9, 2)) << "past the end";
  EXPECT_FALSE(accepted(10, 11, 1)) << "starts past the end";
  EXPECT_FALSE(accepted(10, 5, 0)) << "moves nothing forward";
  EXPECT_FALSE(accepted(kCap, std::numeric_limits<uint64_t>::max(), 2)) << "wraps around";
}

TEST(Frame, AVoteAloneHasASignature) {
  const SignatureBits signature{.call = 7, .shape = 8, .extras = 9, .element = 10};
  const Raw vote =
      encoded(header_of({.kind = ControlKind::kVote, .op = 3, .signature = signature}));
  EXPECT_EQ(control_from(decode_frame(vote, kCap).value(), "").signature, signature);
  const Raw commit =
      encoded(header_of({.kind = ControlKind::kCommit, .op = 3, .signature = signature}));
  EXPECT_FALSE(decode_frame(commit, kCap).ok());
}

TEST(Frame, EveryFieldThatIsNotWrittenIsRefused) {
  const Raw control = encoded({.kind = FrameKind::kControl, .control = ControlKind::kPause});
  ASSERT_TRUE(decode_frame(control, kCap).ok());
  EXPECT_FALSE(decode_frame(with_byte(message(), 0, 'G'), kCap).ok()) << "GET / HTTP/1.1";
  EXPECT_FALSE(decode_frame(with_byte(message(), 1, 0), kCap).ok());
  EXPECT_FALSE(decode_frame(with_byte(message(), 1, 3), kCap).ok());
  EXPECT_FALSE(decode_frame(with_byte(message(), 2, 1), kCap).ok());
  EXPECT_FALSE(decode_frame(with_byte(message(), 3, 1), kCap).ok());
  EXPECT_FALSE(decode_frame(with_byte(control, 2, 0), kCap).ok());
  EXPECT_FALSE(decode_frame(with_byte(control, 2, 16), kCap).ok());
  EXPECT_FALSE(decode_frame(with_byte(control, 3, 17), kCap).ok());
  EXPECT_FALSE(decode_frame(with_byte(control, 20, 1), kCap).ok()) << "piece";
  EXPECT_FALSE(decode_frame(with_byte(control, 32, 1), kCap).ok()) << "offset";
  EXPECT_FALSE(decode_frame(with_byte(control, 47, 1), kCap).ok()) << "call";
  EXPECT_FALSE(decode_frame(with_byte(control, 48, 1), kCap).ok()) << "shape";
  EXPECT_FALSE(decode_frame(with_byte(control, 56, 1), kCap).ok()) << "extras";
  EXPECT_FALSE(decode_frame(with_byte(message(), 62, 1), kCap).ok()) << "reserved";
}

}  // namespace
}  // namespace corro::wire
