// Mesh: finds every other rank through a Bootstrap, authenticates, and returns where all are, what
// local ones pass by descriptor, and a Connector that makes streams when they are first used.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/fd.h"
#include "obs/metrics.h"
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
      "127.0.0.1";        ///< TCP: address to listen on and to publish, IPv4 or IPv6.
  bool one_host = false;  ///< It is known that all ranks are on one host: TCP is not listened on.
  std::string host_id = {};  ///< Ranks with the same id are on one host; "": boot id + namespaces.
  std::string settings =
      {};  ///< Has to be the same on all ranks: words NAME=VALUE, at most 240 bytes.
  Time deadline = {};
  /// At most two descriptors handed to every local peer (the segment, the doorbell), in this order;
  /// borrowed.
  std::vector<int> shared_descriptors = {};
  obs::Metrics metrics = {};  ///< Where strangers that were turned away are counted.
};

struct MeshPeer {
  int32_t rank = -1;
  int32_t pid = 0;
  std::string host_id;
  std::string where;                ///< For messages: "pid 4711", "tcp 10.0.0.2:4711".
  bool local = false;               ///< Same host.
  std::vector<io::Fd> descriptors;  ///< What a local peer passed as shared_descriptors.
};

class Connector;  // connector.h

struct MeshResult {
  MeshResult();
  MeshResult(MeshResult&&) noexcept;
  MeshResult& operator=(MeshResult&&) noexcept;
  ~MeshResult();

  std::vector<MeshPeer> peers;  ///< Index = rank.
  /// Makes connections from now on, and lets others make some. Null for a world of one.
  std::unique_ptr<Connector> connector;
};

/// Blocks until every rank is known, or the deadline: then says which ranks are missing.
/// CANCELLED when the bootstrap's caller is interrupted.
/// INVALID_ARGUMENT, on every rank that gets to see it, if a rank's settings are not those of rank
/// 0.
[[nodiscard]] Result<MeshResult> connect_mesh(const MeshOptions& options);

}  // namespace corro::transport
