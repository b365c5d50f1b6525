// Admission: lets authenticated ranks in and turns strangers away, however many there are and
// whatever they send.
//
//   accepted --> pending ---- the handshake is done ----> wanted?  yes: told so, take_joined()
//                   |                                              no:  hung up
//                   '-- 2 s, 128 bytes or a wrong word: refused
//
// A connection over a Unix socket comes from a process of this user, as the kernel says, and needs
// one hello; over TCP it proves that it knows the job's secret. "Admitted" is sent last, and only
// to the connection that both sides will use. A flood of strangers pushes out the oldest pending
// ones, never a rank that has joined. What a stranger does is counted, and never an error of this
// rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"
#include "transport/mesh_place.h"
#include "transport/stream.h"

namespace corro::transport {

/// A rank that is connected and authenticated.
struct JoinedPeer {
  int32_t rank = -1;
  wire::Purpose purpose = wire::Purpose::kStream;
  bool local = false;              ///< Over a Unix socket, or memory.
  std::unique_ptr<Stream> stream;  ///< For frames.
  io::Fd socket;                   ///< For anything else: TCP, or packets if it is local.
};

/// What a rank of this host sends to another one over the Unix socket: its hello with descriptors.
[[nodiscard]] Result<bool> send_local_hello(const MeshOptions& options, int socket, int32_t to,
                                            wire::Purpose purpose, std::vector<int> descriptors);
/// Reads the answer or question of a rank of this host; no more than 128 bytes. nullopt: nothing
/// has arrived.
struct LocalGreeting {
  int32_t from = -1;
  wire::Purpose purpose = wire::Purpose::kStream;
  std::vector<io::Fd> descriptors;
};
[[nodiscard]] Result<std::optional<LocalGreeting>> receive_local_hello(const MeshOptions& options,
                                                                       int socket);

/// The accepting side: a bounded list of connections that have two seconds and 128 bytes to
/// authenticate; a flood pushes the oldest out. Loop-confined; everything is borrowed.
class Admission {
 public:
  /// Asked before a rank is told that its connection is the one that both use.
  using Wanted = std::function<bool(int32_t rank, wire::Purpose purpose)>;

  Admission(const MeshOptions& options, const Doors& doors, io::Epoll& epoll, Wanted wanted);

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

  /// Event data from here on belongs to others in the same epoll set.
  static constexpr uint64_t kFirstForeign = 1ULL << 63U;

 private:
  struct Pending {
    io::Fd fd;
    Time expires;
    /// Only over TCP; a Unix socket's peer is vouched for by the kernel.
    std::optional<wire::ServerHandshake> handshake;
  };
  enum class Verdict : uint8_t { kWait, kRefuse, kUnwanted, kJoined };

  Status accept_all(const io::Fd& listener, bool tcp, Time now);
  Result<Verdict> advance(Pending& pending);
  Result<Verdict> advance_local(Pending& pending);
  Result<Verdict> advance_tcp(Pending& pending);
  Verdict admit_tcp(Pending& pending);
  [[nodiscard]] Verdict judge(int32_t rank, wire::Purpose purpose) const;
  void refuse(uint64_t id);
  void hang_up(uint64_t id);

  const MeshOptions& options_;
  const Doors& doors_;
  io::Epoll& epoll_;
  const Wanted wanted_;
  const size_t most_pending_;
  uint64_t next_id_;
  std::map<uint64_t, Pending> pending_;  ///< By age.
  std::vector<JoinedPeer> joined_;
};

}  // namespace corro::transport
