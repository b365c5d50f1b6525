// Where a rank is, how it is reached, and where it listens itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/fd.h"
#include "io/socket.h"
#include "transport/mesh.h"
#include "wire/handshake.h"
#include "wire/peer_record.h"

namespace corro::transport {

/// What a rank has told of itself, read.
struct PeerPlace {
  wire::PeerRecord record;
  std::optional<io::SocketAddress> tcp;  ///< Where it listens on TCP, if it does.
};

/// INVALID_ARGUMENT, naming the rank, unless it is a record with addresses that are some.
[[nodiscard]] Result<PeerPlace> place_of(int32_t rank, BytesView record);

/// The listeners of this rank, and what it tells of itself.
struct Doors {
  io::Fd unix_listener;
  io::Fd tcp_listener;  ///< Invalid if nobody comes over TCP.
  wire::PeerRecord record;
};

/// Listens for ranks of this host, and over TCP where others may come: they need the job's secret.
[[nodiscard]] Result<Doors> open_doors(const MeshOptions& options);

/// The keys in the bootstrap of what a rank tells of itself, and of why it gave up.
[[nodiscard]] std::string record_key(const MeshOptions& options, int32_t rank);
[[nodiscard]] std::string failure_key(const MeshOptions& options, int32_t rank);

/// What this rank says of itself in handshakes.
[[nodiscard]] wire::HandshakeIdentity identity_of(const MeshOptions& options);

/// FAILED_PRECONDITION: these ranks are reached over TCP, and there is no secret.
[[nodiscard]] Status no_secret(const MeshOptions& options, const std::vector<int32_t>& over_tcp);

/// INVALID_ARGUMENT, naming what differs, unless `settings` are those of rank 0.
[[nodiscard]] Status check_settings(int32_t rank, const std::string& settings,
                                    const std::string& of_rank_zero);

}  // namespace corro::transport
