#include "wire/joining_packet.h"

#include <optional>

#include "base/check.h"

namespace corro::wire {
namespace {

constexpr uint8_t kMagic = 0xC7;
/// Of 2^31 ranks.
constexpr uint8_t kMostRounds = 31;

using Kind = JoiningPacket::Kind;

Status refused() {
  return {Code::kInvalidArgument, "joining: not a packet of corro, or of another version"};
}

struct Header {
  JoiningPacket packet;
  uint32_t introductions = 0;
  uint32_t bytes = 0;  ///< Behind the header.
};

Result<Header> read_header(ByteReader& reader) {
  const auto magic = reader.read<uint8_t>();
  const auto kind = reader.read<uint8_t>();
  const auto of_host = reader.read<uint8_t>();
  const auto round = reader.read<uint8_t>();
  const auto introductions = reader.read<uint32_t>();
  const auto bytes = reader.read<uint32_t>();
  if (!bytes || magic != kMagic || (kind != 1 && kind != 2) || *of_host > 1 ||
      *round >= kMostRounds || *introductions > kMostIntroductions ||
      *bytes > kMaxJoiningPacket - kJoiningHeaderBytes) {
    return refused();
  }
  return Header{.packet = {.kind = static_cast<Kind>(*kind),
                           .of_host = *of_host != 0,
                           .round = *round,
                           .introductions = {}},
                .introductions = *introductions,
                .bytes = *bytes};
}

std::optional<Introduction> read_introduction(ByteReader& reader) {
  const auto rank = reader.read<int32_t>();
  const auto descriptors = reader.read<uint8_t>();
  const auto size = reader.read<uint32_t>();
  if (!size || *descriptors > kMostDescriptorsEach || *size > kMaxPeerRecord) return std::nullopt;
  const auto record = reader.read_bytes(*size);
  if (!record) return std::nullopt;
  return Introduction{
      .rank = *rank, .record = Bytes(record->begin(), record->end()), .descriptors = *descriptors};
}

}  // namespace

Bytes encode_joining_packet(const JoiningPacket& packet) {
  CORRO_CHECK(packet.introductions.size() <= kMostIntroductions, packet.introductions.size());
  ByteWriter body;
  for (const Introduction& introduction : packet.introductions) {
    CORRO_CHECK(introduction.record.size() <= kMaxPeerRecord, introduction.record.size());
    body.write(introduction.rank);
    body.write(introduction.descriptors);
    body.write(static_cast<uint32_t>(introduction.record.size()));
    body.write_bytes(introduction.record);
  }
  ByteWriter writer;
  writer.write(kMagic);
  writer.write(static_cast<uint8_t>(packet.kind));
  writer.write(static_cast<uint8_t>(packet.of_host));
  writer.write(packet.round);
  writer.write(static_cast<uint32_t>(packet.introductions.size()));
  writer.write(static_cast<uint32_t>(body.bytes().size()));
  writer.write_bytes(body.bytes());
  return writer.take();
}

Result<size_t> joining_packet_bytes(std::span<const std::byte, kJoiningHeaderBytes> header) {
  ByteReader reader(header);
  CORRO_ASSIGN(const Header read, read_header(reader));
  return kJoiningHeaderBytes + read.bytes;
}

Result<JoiningPacket> decode_joining_packet(BytesView bytes) {
  ByteReader reader(bytes);
  CORRO_ASSIGN(Header header, read_header(reader));
  if (reader.remaining() != header.bytes) return refused();
  for (uint32_t i = 0; i < header.introductions; ++i) {
    auto introduction = read_introduction(reader);
    if (!introduction) return refused();
    header.packet.introductions.push_back(std::move(*introduction));
  }
  if (!reader.done()) return refused();
  return std::move(header.packet);
}

Bytes encode_joining_failure(const JoiningFailure& failure) {
  ByteWriter writer;
  writer.write(static_cast<uint8_t>(failure.code));
  writer.write(failure.culprit);
  writer.write_string(std::string_view(failure.text).substr(0, kMaxFailureText));
  return writer.take();
}

Result<JoiningFailure> decode_joining_failure(BytesView bytes) {
  ByteReader reader(bytes);
  const auto code = reader.read<uint8_t>();
  const auto culprit = reader.read<int32_t>();
  auto text = reader.read_string(kMaxFailureText);
  if (!text || !reader.done() || *code == 0 || *code > static_cast<uint8_t>(Code::kUnauthenticated))
    return Status(Code::kInvalidArgument, "joining: not a failure that a rank left");
  return JoiningFailure{
      .code = static_cast<Code>(*code), .culprit = *culprit, .text = std::move(*text)};
}

}  // namespace corro::wire
