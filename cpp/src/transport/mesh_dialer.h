// Dialer: connects to one rank and authenticates, again and again until it works.
//
//   paused          until next_start(): pauses double from 5 to 500 ms
//   connecting      over TCP only; 5 s without an answer are a failure
//   shaking hands   over TCP both prove that they know the secret; a rank of this host gets a
//                   hello, with the memory of the stream, and answers with its own
//   done            the other side has taken the connection: take_joined()
//
// Every failure leads back to *paused*: the other rank may not listen yet, and may hang up because
// its own connection to this rank is the one that counts. Who owns the dialer decides when to give
// up, from reason(), failure() and nobody_listens().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"
#include "transport/mesh_admission.h"
#include "transport/mesh_place.h"

namespace corro::transport {

/// Loop-confined; everything is borrowed. Its events carry Admission::kFirstForeign + the peer's
/// rank.
class Dialer {
 public:
  Dialer(const MeshOptions& options, const PeerPlace& place, int32_t peer, io::Epoll& epoll,
         wire::Purpose purpose, bool over_tcp, Time first_start = {})
      : options_(options),
        place_(place),
        peer_(peer),
        epoll_(epoll),
        purpose_(purpose),
        over_tcp_(over_tcp),
        next_start_(first_start) {}

  ~Dialer() { hang_up(); }
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  /// Starts a new attempt if it is time. A failure is one that no further attempt mends.
  [[nodiscard]] Status start_if_due(Time now);
  [[nodiscard]] Status on_event(Time now);
  /// When start_if_due() has something to do next.
  [[nodiscard]] Time next_start() const;
  /// The peer, once.
  [[nodiscard]] std::optional<JoinedPeer> take_joined() { return std::exchange(joined_, {}); }
  /// Why there is no connection yet.
  [[nodiscard]] const std::string& reason() const { return reason_; }
  /// How the last attempt to connect failed (io::connection_status), or OK.
  [[nodiscard]] Code failure() const { return failure_; }
  /// The other host's kernel has said that nobody listens there any more.
  [[nodiscard]] bool nobody_listens() const { return nobody_listens_; }
  /// In a forked child.
  void abandon_in_child() { socket_.reset(); }

 private:
  enum class State : uint8_t { kPaused, kConnecting, kShakingHands, kDone };

  Status dial_local(Time now);
  Status dial_tcp(Time now);
  Status on_local(Time now);
  Status on_tcp(Time now);
  Status on_connected(Time now);
  void hang_up();
  bool introduce();
  /// Sends what the handshake has to say; false if it could not.
  bool send_output();
  void try_later(Time now, std::string reason, Code failure = Code::kAborted);

  const MeshOptions& options_;
  const PeerPlace& place_;
  const int32_t peer_;
  io::Epoll& epoll_;
  const wire::Purpose purpose_;
  const bool over_tcp_;
  State state_ = State::kPaused;
  Time next_start_;
  Duration pause_{};
  Time attempt_ends_{};
  io::Fd socket_;
  std::unique_ptr<Stream> stream_;  ///< Over shared memory, while the peer has not answered.
  std::optional<wire::ClientHandshake> handshake_;
  std::optional<JoinedPeer> joined_;
  std::string reason_ = "no answer";
  Code failure_ = Code::kOk;
  bool nobody_listens_ = false;
};

}  // namespace corro::transport
