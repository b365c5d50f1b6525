// The first half of connect_mesh(): listen, tell the others where, and learn where they are.
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

/// Where a rank is and how it is reached.
struct PeerPlace {
  wire::PeerRecord record;
  bool over_tcp = false;
  std::optional<io::SocketAddress> tcp;  ///< Known for those this rank may dial.
};

/// The higher rank of a pair dials, the lower one accepts.
[[nodiscard]] inline bool dials(int32_t rank, int32_t peer) { return rank > peer; }

struct Rendezvous {
  std::vector<PeerPlace> places;  ///< Index = rank; this rank's own is among them.
  io::Fd unix_listener;
  io::Fd tcp_listener;  ///< Invalid if nobody comes over TCP.
};

/// Blocks until every rank has told where it is, or the deadline: then names those that have not.
[[nodiscard]] Result<Rendezvous> rendezvous(const MeshOptions& options);

/// What this rank says of itself in handshakes.
[[nodiscard]] wire::HandshakeIdentity identity_of(const MeshOptions& options);

/// Returns "ranks 1, 2 and 5", "rank 3", and for many "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 90 more".
[[nodiscard]] std::string list_ranks(const std::vector<int32_t>& ranks);

}  // namespace corro::transport
