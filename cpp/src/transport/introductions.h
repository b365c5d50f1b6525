// Introductions: the sockets of Joining. First all ranks of the job pass on their records; then,
// where a job has several hosts, the ranks of each host once more, with the descriptors that they
// share. On one host both are the same rounds.
//
// It has an epoll set of its own. Ranks that dial for joining are admitted by whoever owns the
// listeners. It lives on when it is over: a rank whose last answer was lost asks again.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"
#include "transport/joining.h"
#include "transport/mesh_admission.h"
#include "transport/mesh_dialer.h"
#include "transport/mesh_place.h"
#include "wire/joining_packet.h"

namespace corro::transport {

/// Loop-confined; options and doors are borrowed.
class Introductions {
 public:
  Introductions(const MeshOptions& options, const Doors& doors, io::Epoll epoll, Time started);
  ~Introductions();

  /// Readable while poll() has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.fd(); }
  /// Handles what has happened. Never blocks.
  void poll(Time now);
  /// When poll() has something to do by itself.
  [[nodiscard]] Time next_wake() const;
  /// A rank has dialled this one for joining.
  void admit(JoinedPeer joined, Time now);

  /// Ranks whose records are to be looked for in the bootstrap, since the last call.
  [[nodiscard]] std::vector<int32_t> take_asks();
  void found(int32_t rank, BytesView record, Time now);
  void gone(int32_t rank, const Status& why);

  [[nodiscard]] bool over() const;
  [[nodiscard]] Status failure() const;
  /// Once over without a failure: where each rank is, and what the local ones share.
  [[nodiscard]] const std::vector<std::optional<PeerPlace>>& places() const { return places_; }
  [[nodiscard]] std::vector<io::Fd> take_descriptors(int32_t rank);

  /// In a forked child: closes every descriptor without a word.
  void abandon_in_child();

 private:
  /// A connection for joining, dialled by this rank or by the other one.
  struct Link {
    uint64_t id;
    int32_t rank;
    bool dialled_here;
    bool local;
    io::Fd socket;
    Bytes received;
    struct Sending {
      Bytes bytes;
      std::vector<int> descriptors;
      size_t sent = 0;
    };
    std::deque<Sending> to_send;
  };
  /// One set of rounds: among all ranks, or those of this host. It counts its members from 0.
  struct Circle {
    bool of_host;
    std::vector<int32_t> members;  ///< Ranks.
    Joining joining;
    [[nodiscard]] int32_t index_of(int32_t rank) const;
  };

  void act(Time now);
  void act(Circle& circle, const JoiningAction& action, Time now);
  void dial(int32_t rank, Time now);
  void add_link(JoinedPeer joined, bool dialled_here, Time now);
  void drop(uint64_t id, Time now);
  void read(uint64_t id, Time now);
  bool read_some(Link& link, Time now);
  void write(uint64_t id, Time now);
  [[nodiscard]] bool flush(Link& link) const;
  bool take_packet(Link& link, std::vector<io::Fd> descriptors, Time now);
  void hear(const Link& link, const wire::JoiningPacket& packet, std::vector<io::Fd> descriptors,
            Time now);
  void learn(int32_t rank, BytesView record, Time now);
  void check(int32_t rank, Time now);
  void watch(int32_t rank);
  void ended(int32_t rank);
  void start_circle_of_host(Time now);
  [[nodiscard]] Circle* circle_of(bool of_host);
  [[nodiscard]] bool is_local(int32_t rank) const;
  void queue(Link& link, const wire::JoiningPacket& packet);
  [[nodiscard]] Link* link_to(int32_t rank, bool dialled_here);

  const MeshOptions& options_;
  const Doors& doors_;
  io::Epoll epoll_;
  const Time started_;
  Circle all_;
  std::optional<Circle> host_;
  std::vector<std::optional<PeerPlace>> places_;
  std::vector<std::vector<io::Fd>> descriptors_;  ///< By rank.
  std::vector<int32_t> asks_, over_tcp_;
  std::map<int32_t, Dialer> dialers_;
  std::map<uint64_t, Link> links_;
  uint64_t next_link_ = 0;
  std::map<int32_t, io::Fd> watched_;  ///< Processes of this host.
  std::vector<int32_t> ended_;         ///< Those that have ended.
  /// What ranks of this host said of the second circle before it began here.
  struct Early {
    uint64_t link;
    wire::JoiningPacket packet;
    std::vector<io::Fd> descriptors;
  };
  std::vector<Early> early_;
};

}  // namespace corro::transport
