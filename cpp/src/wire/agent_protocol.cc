#include "wire/agent_protocol.h"

#include <fmt/format.h>

#include <cstring>

namespace corro::wire {
namespace {

/// The fixed part of a packet, little-endian; key and value follow.
struct RawPacket {
  uint8_t kind = 0;
  uint8_t version = kAgentMessagesVersion;
  uint8_t code = 0;
  uint8_t reserved = 0;
  uint32_t request = 0;
  int32_t rank = -1;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
};
static_assert(sizeof(RawPacket) == kAgentHeaderBytes);

Status refused_packet(const char* what, uint64_t value) {
  return {Code::kInvalidArgument, fmt::format("agent message: {} {} is not valid", what, value)};
}

}  // namespace

std::optional<int> other_version_of(BytesView packet) {
  if (packet.size() < kAgentHeaderBytes) return std::nullopt;
  RawPacket raw;
  std::memcpy(&raw, packet.data(), sizeof(raw));
  const uint64_t bytes = uint64_t{kAgentHeaderBytes} + raw.key_bytes + raw.value_bytes;
  const bool is_packet = raw.reserved == 0 && packet.size() == bytes;
  if (!is_packet || raw.version == kAgentMessagesVersion) return std::nullopt;
  return raw.version;
}

Status different_versions(int of_rank, int of_agent) {
  return {Code::kFailedPrecondition,
          fmt::format("this rank's corro has message version {}, its agent {}: install the same "
                      "corro in the image",
                      of_rank, of_agent)};
}

Result<size_t> agent_packet_bytes(BytesView begin) {
  if (begin.size() < kAgentHeaderBytes) return kAgentHeaderBytes;
  RawPacket raw;
  std::memcpy(&raw, begin.data(), sizeof(raw));
  if (raw.key_bytes > kMaxBootstrapKey) return refused_packet("key length", raw.key_bytes);
  if (raw.value_bytes > kMaxBootstrapValue) return refused_packet("value length", raw.value_bytes);
  return kAgentHeaderBytes + raw.key_bytes + raw.value_bytes;
}

Bytes encode_agent_message(const AgentMessage& message, int version) {
  CORRO_CHECK(message.key.size() <= kMaxBootstrapKey, message.key.size());
  CORRO_CHECK(message.value.size() <= kMaxBootstrapValue, message.value.size());
  const RawPacket raw{.kind = static_cast<uint8_t>(message.kind),
                      .version = static_cast<uint8_t>(version),
                      .code = static_cast<uint8_t>(message.code),
                      .request = message.request,
                      .rank = message.rank,
                      .key_bytes = static_cast<uint32_t>(message.key.size()),
                      .value_bytes = static_cast<uint32_t>(message.value.size())};
  ByteWriter writer;
  writer.write_bytes(std::as_bytes(std::span(&raw, 1)));
  writer.write_bytes(std::as_bytes(std::span(message.key)));
  writer.write_bytes(message.value);
  return writer.take();
}

Result<AgentMessage> decode_agent_message(BytesView packet) {
  if (packet.size() < kAgentHeaderBytes) return refused_packet("size", packet.size());
  RawPacket raw;
  std::memcpy(&raw, packet.data(), sizeof(raw));
  if (raw.version != kAgentMessagesVersion) return refused_packet("version", raw.version);
  if (raw.kind < static_cast<uint8_t>(AgentMessageKind::kHello) ||
      raw.kind > static_cast<uint8_t>(AgentMessageKind::kNotice)) {
    return refused_packet("kind", raw.kind);
  }
  if (raw.code > static_cast<uint8_t>(Code::kUnauthenticated))
    return refused_packet("code", raw.code);
  if (raw.reserved != 0) return refused_packet("reserved byte", raw.reserved);
  if (raw.key_bytes > kMaxBootstrapKey) return refused_packet("key length", raw.key_bytes);
  if (raw.value_bytes > kMaxBootstrapValue) return refused_packet("value length", raw.value_bytes);
  if (packet.size() != kAgentHeaderBytes + raw.key_bytes + raw.value_bytes)
    return refused_packet("size", packet.size());
  const BytesView key = packet.subspan(kAgentHeaderBytes, raw.key_bytes);
  const BytesView value = packet.subspan(kAgentHeaderBytes + raw.key_bytes);
  return AgentMessage{.kind = static_cast<AgentMessageKind>(raw.kind),
                      .request = raw.request,
                      .rank = raw.rank,
                      .code = static_cast<Code>(raw.code),
                      .key = std::string(reinterpret_cast<const char*>(key.data()), key.size()),
                      .value = Bytes(value.begin(), value.end())};
}

}  // namespace corro::wire
