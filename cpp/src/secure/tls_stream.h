// TLS between the parts of a job: version 1.3, each side proved by a key that both know.
//
//   CORRO_ASSIGN(auto tls, Tls::client(identity, key));         // a member
//   CORRO_ASSIGN(auto stream, tls.open(std::move(socket)));     // may not be connected yet
//
//   CORRO_ASSIGN(auto tls, Tls::server([&](const PodIdentity& who) -> Result<Key> { ... }));
//   CORRO_ASSIGN(auto stream, tls.open(std::move(accepted)));
//   ... stream->peer() once it has read or written something
//
// The handshake is part of the first reads and writes. Nothing is read of a peer before it has
// proved its key, nor does one get anything: there is no early data, and no ticket. What was
// recorded is of no use against another random number.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "io/byte_stream.h"
#include "io/fd.h"
#include "secure/credentials.h"

namespace corro::secure {

/// A connection. Its reads and writes fail with UNAUTHENTICATED if this side or the other one did
/// not prove its key, DATA_LOSS for bytes that were changed on the way, UNAVAILABLE at its end.
class TlsStream : public io::ByteStream {
 public:
  /// Who the other side is, as the server's finder had it; of a client, and before the handshake is
  /// over, none.
  [[nodiscard]] virtual const std::optional<PodIdentity>& peer() const = 0;
  /// The handshake is over.
  [[nodiscard]] virtual bool is_proved() const = 0;
};

/// One side of such connections. Immutable; copies share what is in it. Connections keep it.
class Tls {
 public:
  /// The key of whoever says to be this; a failure refuses it. Called in reads and writes.
  using FindKey = std::function<Result<Key>(const PodIdentity&)>;

  /// INTERNAL if OpenSSL refuses.
  [[nodiscard]] static Result<Tls> client(const PodIdentity& identity, const Key& key);
  [[nodiscard]] static Result<Tls> server(FindKey find_key);

  /// Takes over a non-blocking TCP socket.
  [[nodiscard]] Result<std::unique_ptr<TlsStream>> open(io::Fd socket) const;

  struct Side;

 private:
  explicit Tls(std::shared_ptr<const Side> side) : side_(std::move(side)) {}
  std::shared_ptr<const Side> side_;  ///< Shared with the connections.
};

}  // namespace corro::secure
