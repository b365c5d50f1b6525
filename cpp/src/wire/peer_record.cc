#include "wire/peer_record.h"

namespace corro::wire {
namespace {

constexpr uint32_t kRecordVersion = 3;

}  // namespace

Bytes encode_peer_record(const PeerRecord& record) {
  CORRO_CHECK(record.host_id.size() <= kMaxHostId, record.host_id);
  CORRO_CHECK(record.unix_name.size() <= kMaxUnixName, record.unix_name);
  CORRO_CHECK(record.tcp.size() <= kMaxTcpAddress, record.tcp);
  CORRO_CHECK(record.settings.size() <= kMaxSettings, record.settings);
  ByteWriter writer;
  writer.write(kRecordVersion);
  writer.write(record.pid);
  writer.write_string(record.host_id);
  writer.write_string(record.unix_name);
  writer.write_string(record.tcp);
  writer.write_string(record.settings);
  return writer.take();
}

Result<PeerRecord> decode_peer_record(BytesView bytes) {
  ByteReader reader(bytes);
  const auto version = reader.read<uint32_t>();
  const auto pid = reader.read<int32_t>();
  auto host_id = reader.read_string(kMaxHostId);
  auto unix_name = reader.read_string(kMaxUnixName);
  auto tcp = reader.read_string(kMaxTcpAddress);
  auto settings = reader.read_string(kMaxSettings);
  if (version != kRecordVersion || !pid || !host_id || !unix_name || !tcp || !settings ||
      !reader.done()) {
    return Status(Code::kInvalidArgument, "peer record: not one of corro's, or of another version");
  }
  return PeerRecord{.pid = *pid,
                    .host_id = std::move(*host_id),
                    .unix_name = std::move(*unix_name),
                    .tcp = std::move(*tcp),
                    .settings = std::move(*settings)};
}

}  // namespace corro::wire
