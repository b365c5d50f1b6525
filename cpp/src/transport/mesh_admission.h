// Admission: lets authenticated ranks in and turns strangers away, however many there are and
// whatever they send.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"
#include "transport/mesh_rendezvous.h"
#include "transport/stream.h"

namespace corro::transport {

/// A rank that is connected and authenticated, for the one purpose or the other.
struct JoinedPeer {
  int32_t rank = -1;
  std::unique_ptr<Stream> stream;
  std::vector<io::Fd> descriptors;
  io::Fd liveness;  ///< Over TCP, or of packets between ranks of one host.
};

/// What a rank of this host sends to another one over the Unix socket: its hello with descriptors.
[[nodiscard]] Result<bool> send_local_hello(const MeshOptions& options, int socket, int32_t to,
                                            std::vector<int> descriptors);
/// Reads the answer or question of a rank of this host; no more than 128 bytes. nullopt: nothing
/// has arrived.
struct LocalGreeting {
  int32_t from = -1;
  std::vector<io::Fd> descriptors;
};
[[nodiscard]] Result<std::optional<LocalGreeting>> receive_local_hello(const MeshOptions& options,
                                                                       int socket);

/// The accepting side: a bounded list of connections that have two seconds and 128 bytes to
/// authenticate; a flood pushes the oldest out. Loop-confined; everything is borrowed.
class Admission {
 public:
  Admission(const MeshOptions& options, const Rendezvous& found, io::Epoll& epoll);

  /// Watches the listeners.
  [[nodiscard]] Status start();
  /// Leaves them alone until start().
  void pause();
  /// Handles an event whose data it chose (below kFirstForeign). A failure is this rank's own,
  /// never a stranger's.
  [[nodiscard]] Status on_event(uint64_t data, Time now);
  /// Turns away who is late.
  void expire(Time now);
  /// When expire() has something to do next.
  [[nodiscard]] Time next_expiry() const;
  /// Who has joined since the last call.
  [[nodiscard]] std::vector<JoinedPeer> take_joined() { return std::exchange(joined_, {}); }
  /// Connections turned away so far, with those that are pending now.
  [[nodiscard]] uint64_t refused() const { return refused_ + pending_.size(); }

  /// Event data from here on belongs to others in the same epoll set.
  static constexpr uint64_t kFirstForeign = 1ULL << 63U;

 private:
  struct Pending {
    io::Fd fd;
    Time expires;
    /// Only over TCP; a Unix socket's peer is vouched for by the kernel.
    std::optional<wire::ServerHandshake> handshake;
  };
  enum class Verdict : uint8_t { kWait, kRefuse, kJoined };

  Status accept_all(const io::Fd& listener, bool tcp, Time now);
  Result<Verdict> advance(Pending& pending);
  Verdict admit_for_liveness(Pending& pending, int32_t rank);
  Result<Verdict> advance_local(Pending& pending);
  Result<Verdict> advance_tcp(Pending& pending);
  /// True if this rank waits for `rank` to dial it that way.
  [[nodiscard]] bool expects(int32_t rank, bool tcp) const;
  void refuse(uint64_t id);

  const MeshOptions& options_;
  const Rendezvous& found_;
  io::Epoll& epoll_;
  const size_t most_pending_;
  uint64_t next_id_;
  std::map<uint64_t, Pending> pending_;  ///< By age.
  std::vector<JoinedPeer> joined_;
  uint64_t refused_ = 0;
};

/// The listeners of a rank and who knocks there. Where it is, it stays: its parts know each other.
struct Doors {
  Doors(MeshOptions mesh_options, Rendezvous rendezvous, io::Epoll set)
      : options(std::move(mesh_options)), found(std::move(rendezvous)), epoll(std::move(set)) {}
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  MeshOptions options;
  Rendezvous found;
  io::Epoll epoll;
  Admission admission{options, found, epoll};
  std::vector<JoinedPeer> early;  ///< Came for liveness while this rank still connected.
};

}  // namespace corro::transport
