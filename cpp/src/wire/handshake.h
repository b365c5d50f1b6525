// The handshake that opens every TCP connection: mutual challenge and response under the job's
// secret, as two state machines without any I/O. Bytes and reasons: docs/wire.md.
//
//   the dialling side                          the listening side
//
//   ClientHandshake client(identity,
//                          /*server_rank=*/0,
//                          secret);            ServerHandshake server(identity, secret);
//   send(client.take_output());  // 72 bytes
//                                              server.feed(read up to server.wanted());
//                                              send(server.take_output());  // 64 bytes
//   client.feed(read up to client.wanted());
//   send(client.take_output());  // 32 bytes
//                                              server.feed(...); server.done(), server.peer_rank()
//                                              send(kAdmitted) if it takes the connection
//   client.feed(the welcome); client.done()
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/bootstrap.h"
#include "wire/digest.h"

namespace corro::wire {

inline constexpr size_t kHelloBytes = 72;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kChallengeBytes = kNonceBytes + kProofBytes;
static_assert(kHelloBytes + kProofBytes <= 128, "read from a stranger before it is authenticated");

using Nonce = std::array<std::byte, kNonceBytes>;

/// The purpose of a connection.
enum class Purpose : uint16_t {
  kStream = 0,     ///< Frames.
  kLiveness = 1,   ///< To notice that the other host is lost, and to tell of lost hosts.
  kJoining = 2,    ///< To tell each other of all ranks while the job starts.
  kBootstrap = 3,  ///< To find each other before that: packets of the agent's protocol follow.
  kTable = 4,      ///< To a table server: messages of table/service follow.
  kServed = 5,     ///< To a server as an aggregator of allreduces: frames.
};
inline constexpr uint16_t kPurposes = 6;

/// The last word of a server: both sides use this connection from now on. Only after that may the
/// dialling side take it for lost.
inline constexpr std::array<std::byte, 1> kAdmitted = {std::byte{1}};

/// The parties of a handshake; the same on both sides but for `rank`.
struct HandshakeIdentity {
  Digest job{};  ///< digest_of() the job's name.
  uint32_t epoch = 0;
  int32_t rank = 0;  ///< Of the side that holds this.
  int32_t size = 1;
};

/// The first message of a client.
struct Hello {
  Purpose purpose = Purpose::kStream;
  uint32_t epoch = 0;
  Digest job{};
  int32_t from = -1;
  int32_t to = -1;
  Nonce nonce{};
};
using RawHello = std::array<std::byte, kHelloBytes>;
[[nodiscard]] RawHello encode_hello(const Hello& hello);
/// INVALID_ARGUMENT unless magic and version are right and the purpose is one.
[[nodiscard]] Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> raw);

/// The part that both sides have in common: bytes collected up to a known length. Loop-confined.
class HandshakeBuffer {
 public:
  explicit HandshakeBuffer(size_t wanted) : wanted_(wanted) {}
  [[nodiscard]] size_t wanted() const { return wanted_ - bytes_.size(); }
  /// Appends; true once everything wanted is here.
  bool collect(BytesView bytes);
  /// Starts over with the next message; returns the one collected.
  Bytes take(size_t next_wanted);

 private:
  size_t wanted_;
  Bytes bytes_;
};

/// The side that connected. Loop-confined.
class ClientHandshake {
 public:
  ClientHandshake(const HandshakeIdentity& identity, int32_t server_rank, const Secret& secret,
                  Purpose purpose = Purpose::kStream);
  /// Never read more than this: what follows belongs to the stream.
  [[nodiscard]] size_t wanted() const { return in_.wanted(); }
  /// Takes 1 to wanted() bytes. UNAUTHENTICATED if the server does not know the secret, or ends
  /// with anything but a welcome.
  [[nodiscard]] Status feed(BytesView bytes);
  /// The bytes to send now; empty if there are none.
  [[nodiscard]] Bytes take_output() { return std::exchange(output_, {}); }
  /// Both sides are authenticated, and the server has taken the connection.
  [[nodiscard]] bool done() const { return done_; }

 private:
  Status take_challenge(BytesView challenge);

  Secret secret_;
  RawHello hello_;
  HandshakeBuffer in_{kChallengeBytes};
  Bytes output_;
  bool proven_ = false;  ///< The server knows the secret.
  bool done_ = false;
};

/// The side that accepted. Loop-confined.
class ServerHandshake {
 public:
  ServerHandshake(const HandshakeIdentity& identity, const Secret& secret);
  [[nodiscard]] size_t wanted() const { return in_.wanted(); }
  /// Takes 1 to wanted() bytes. Any failure: hang up without an answer.
  [[nodiscard]] Status feed(BytesView bytes);
  [[nodiscard]] Bytes take_output() { return std::exchange(output_, {}); }
  /// The client is authenticated.
  [[nodiscard]] bool done() const { return done_; }
  /// The rank of the client; only when done.
  [[nodiscard]] int32_t peer_rank() const { return peer_rank_; }
  [[nodiscard]] Purpose purpose() const { return purpose_; }

 private:
  Status take_hello(BytesView bytes);
  Status take_proof(BytesView bytes);

  HandshakeIdentity identity_;
  Secret secret_;
  Nonce nonce_{};
  RawHello hello_{};
  HandshakeBuffer in_{kHelloBytes};
  Bytes output_;
  int32_t peer_rank_ = -1;
  Purpose purpose_ = Purpose::kStream;
  bool hello_taken_ = false;
  bool done_ = false;
};

/// The words of two ranks of one host to each other, beside descriptors, over a Unix socket. The
/// kernel vouches for its peer.
struct LocalHello {
  Purpose purpose = Purpose::kStream;
  Digest job{};
  uint32_t epoch = 0;
  int32_t from = -1;
  int32_t to = -1;
  uint32_t descriptors = 0;  ///< How many come with this message.
};
inline constexpr size_t kLocalHelloBytes = 48;
using RawLocalHello = std::array<std::byte, kLocalHelloBytes>;
[[nodiscard]] RawLocalHello encode_local_hello(const LocalHello& hello);
/// Reads one whole packet. INVALID_ARGUMENT unless encode_local_hello could have written it.
[[nodiscard]] Result<LocalHello> decode_local_hello(BytesView packet);

}  // namespace corro::wire
