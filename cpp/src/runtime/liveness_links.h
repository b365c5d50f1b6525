// LivenessLinks: the sockets of Liveness. One epoll set that is ready when something has happened;
// nothing in it has a timer while every wanted connection is there.
//
//   watch.add(links->poll_fd(), EPOLLIN, kLivenessEvent);
//   for (const Loss& loss : links->poll(monotonic_now())) ...
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"
#include "runtime/liveness.h"
#include "transport/connector.h"
#include "transport/mesh_dialer.h"

namespace corro::runtime {

/// A rank is lost, and how that was noticed, for messages.
struct Loss {
  int32_t rank = -1;
  std::string how;
  bool unmet = false;  ///< Nobody listens there any more, and no stream was ever made.
};

/// Loop-confined.
class LivenessLinks final {
 public:
  /// `hosts[r]` names rank r's host. The connector, which outlives it, knows where ranks are; ranks
  /// that dial this one come by it.
  static Result<std::unique_ptr<LivenessLinks>> create(const transport::Connector& connector,
                                                       const std::vector<std::string>& hosts);

  /// A rank has dialled this one for liveness.
  void admit(transport::JoinedPeer peer, Time now);
  /// Readable while poll() has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.fd(); }
  /// Handles what has happened; returns who is lost by it. Never blocks.
  [[nodiscard]] std::vector<Loss> poll(Time now);
  /// A rank of this host has ended, says its pidfd.
  void rank_ended(int32_t rank, Time now);
  /// In a forked child: closes every descriptor without a word to the peers.
  void abandon_in_child();

 private:
  /// A connection with a rank. An entry for each rank stays in its place, so that a forked child
  /// can close them whatever this thread was doing.
  struct Link {
    io::Fd fd;
    Bytes received;  ///< The beginning of a piece of news.
  };
  struct Dial {
    int32_t rank = -1;
    Time since;
    std::optional<transport::Dialer> dialer;
  };

  LivenessLinks(const transport::Connector& connector, const std::vector<std::string>& hosts,
                io::Epoll epoll, io::Alarm alarm);
  Status start(Time now);

  void handle(uint64_t event, Time now);
  void move_on(Time now);
  void knock(Dial& dial, Time now);
  void judge(Dial& dial, Time now);
  void keep(transport::JoinedPeer peer, bool dialed_here, Time now);
  void read(int32_t rank, Time now);
  bool read_news(int32_t rank, Time now);
  void act(const Liveness::Actions& actions, Time now);
  void begin_dial(const LivenessAction& action, Time now);
  void forget(int32_t rank);
  void drop(int32_t rank);
  void tell(const LivenessAction& news, Time now);

  const transport::Connector& connector_;
  io::Epoll epoll_;
  io::Alarm alarm_;
  Liveness liveness_;
  std::vector<Link> links_;    ///< By rank.
  std::array<Dial, 2> dials_;  ///< No rank has to dial more.
  std::vector<Loss> losses_;
};

}  // namespace corro::runtime
