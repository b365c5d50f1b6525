// Mesh: finds every other rank through a Bootstrap, authenticates, and returns one Stream per peer
// plus what local peers pass by descriptor.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/fd.h"
#include "transport/stream.h"
#include "wire/bootstrap.h"

namespace corro::transport {

enum class LocalTransport : uint8_t { kShm, kTcp };

struct MeshOptions {
  int32_t rank = 0;
  int32_t size = 1;
  std::string job;                       ///< Prefix of every key; part of the handshake.
  wire::Bootstrap* bootstrap = nullptr;  ///< Borrowed.
  std::optional<wire::Secret>
      secret;  ///< From bootstrap->secret() or CORRO_SECRET_FILE; none: one host only.
  LocalTransport local =
      LocalTransport::kShm;  ///< CORRO_TRANSPORT=tcp: ranks of one host use TCP too.
  std::string listen_address =
      "127.0.0.1";       ///< TCP: address to listen on and to publish, IPv4 or IPv6.
  std::string host_id;   ///< Ranks with the same id are on one host; "": boot id + namespaces.
  std::string settings;  ///< Has to be the same on all ranks: words NAME=VALUE, at most 240 bytes.
  Time deadline;
  /// Descriptors handed to every local peer (the arena, the board, the doorbell), in this order;
  /// borrowed.
  std::vector<int> shared_descriptors;
};

struct MeshPeer {
  int32_t rank = -1;
  int32_t pid = 0;
  std::string host_id;
  bool local = false;               ///< Same host: the descriptors are here.
  std::unique_ptr<Stream> stream;   ///< Null for this rank itself.
  std::vector<io::Fd> descriptors;  ///< What the peer passed as shared_descriptors.
};

struct Doors;  // mesh_admission.h

struct MeshResult {
  MeshResult();
  MeshResult(MeshResult&&) noexcept;
  MeshResult& operator=(MeshResult&&) noexcept;
  ~MeshResult();

  std::vector<MeshPeer> peers;      ///< Index = rank; this rank's entry has no stream.
  uint64_t handshakes_refused = 0;  ///< Strangers turned away meanwhile.
  /// Where ranks may still connect for liveness, and may have done so. Null for a world of one.
  std::unique_ptr<Doors> doors;
};

/// Blocks until connected to every peer, or the deadline: then says which ranks are missing.
/// CANCELLED when the bootstrap's caller is interrupted.
/// INVALID_ARGUMENT, on every rank that gets to see it, if a rank's settings are not those of rank
/// 0.
[[nodiscard]] Result<MeshResult> connect_mesh(const MeshOptions& options);

}  // namespace corro::transport
