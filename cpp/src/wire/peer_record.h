// PeerRecord: what a rank tells of itself so that the others find it: in the bootstrap, and in the
// rounds of joining.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace corro::wire {

inline constexpr size_t kMaxHostId = 256;
inline constexpr size_t kMaxUnixName = 100;
inline constexpr size_t kMaxSettings = 256;
inline constexpr size_t kMaxTcpAddress = 64;
inline constexpr size_t kMaxPeerRecord = 720;

struct PeerRecord {
  int32_t pid = 0;
  std::string host_id = {};    ///< Ranks with the same one share a host.
  std::string unix_name = {};  ///< Abstract Unix socket for ranks of the same host.
  std::string tcp = {};        ///< "127.0.0.1:40123" or "[::1]:40123"; empty: it does not listen.
  std::string settings = {};   ///< What has to be the same on all ranks: words NAME=VALUE.
};

[[nodiscard]] Bytes encode_peer_record(const PeerRecord& record);
/// INVALID_ARGUMENT unless it is exactly what encode_peer_record writes.
[[nodiscard]] Result<PeerRecord> decode_peer_record(BytesView bytes);

}  // namespace corro::wire
