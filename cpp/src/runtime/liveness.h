// Liveness: which ranks keep a connection to which, and who is lost when one breaks: a state
// machine without I/O, clock or timer. The shell (liveness_links.h) owns the sockets; this class
// hears what happened to them and answers what to do.
//
// Every host is watched by its neighbours in a ring of hosts, ordered by their first ranks. The
// lowest living rank of a host is its *owner*. Owners of neighbouring hosts keep one connection,
// which the kernels probe while nothing is on its way; every other rank keeps one connection to the
// owner of its own host, which carries news to it. So a rank dials at most two others.
//
//   unreachable   A kernel got no answer from the other end's kernel for some seconds. A stopped
//                 process does not cause that, nor does a busy one: the host is lost, and all its
//                 ranks with it. Nothing else loses anybody.
//   closed        The other end's process has ended, or the connection broke for a reason of its
//                 own. The rank is dialled again, and the answer decides.
//   ended         Nobody listens at that rank any more, or its pidfd says so: it owns nothing from
//                 now on, so the next rank of its host is dialled. It is not lost here: whoever has
//                 a connection for data to it learns its end, in order or not, from that.
//   told          News of a lost host. It is passed on once, on all other connections; a new
//                 connection gets all of it. So news goes round the ring both ways, and a break of
//                 the ring loses none.
//
// Both ends of a broken edge dial, since neither knows whether the other one knows: if both arrive,
// the connection that the higher rank made stays, on both sides. Only at the start does the lower
// rank wait (*gently*): the higher ranks dial the lower ones when they join, too, so firewalls are
// known to allow that.
//
// What cannot be seen: between two hosts that live and lose only the connection to each other, each
// calls the other one lost, and the rest hears both. Where owners are stopped on two hosts, news
// does not pass the ring between them until they go on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace corro::runtime {

struct LivenessAction {
  enum class Kind : uint8_t {
    kDial,    ///< Dial `rank` until it is linked(), ended() or unreachable(), or kForget comes.
    kForget,  ///< Stop dialling `rank`, and close the connection to it, if there is one.
    kTell,    ///< Say to `rank`: `host` is lost, `witness` has noticed.
    kLose,    ///< `rank` is lost with its host; `witness` has noticed.
  };
  Kind kind = Kind::kDial;
  int32_t rank = -1;
  int32_t host = -1;     ///< By the number of its lowest rank.
  int32_t witness = -1;  ///< The rank whose kernel got no answer.
  bool gently = false;   ///< kDial: only if `rank` has not dialled this one after a while.
  friend bool operator==(const LivenessAction&, const LivenessAction&) = default;
};

/// Loop-confined. Every event returns what is to be done now, in order. Events about a rank that is
/// gone, or was not asked for, are harmless: they may cross with others on their way.
class Liveness final {
 public:
  using Actions = std::vector<LivenessAction>;

  /// `hosts[r]` names rank r's host.
  Liveness(int32_t rank, const std::vector<std::string>& hosts);

  [[nodiscard]] Actions start();
  /// A connection with `rank` was made. False: another one is kept, close the new one. True: it
  /// replaces the one there may be; then call linked().
  [[nodiscard]] bool keeps(int32_t rank, bool dialed_here) const;
  [[nodiscard]] Actions linked(int32_t rank, bool dialed_here);
  [[nodiscard]] Actions closed(int32_t rank);
  [[nodiscard]] Actions ended(int32_t rank);
  [[nodiscard]] Actions unreachable(int32_t rank);
  [[nodiscard]] Actions told(int32_t from, int32_t host, int32_t witness);

  /// True if `rank` is on this rank's host.
  [[nodiscard]] bool is_local(int32_t rank) const { return at(rank).host == at(rank_).host; }
  [[nodiscard]] bool is_lost(int32_t host) const { return at(host).witness >= 0; }

 private:
  enum class Link : uint8_t { kNone, kDialedHere, kDialedThere };
  struct Peer {
    int32_t host = -1;     ///< The lowest rank of its host.
    int32_t next = -1;     ///< The next rank of its host; -1: none.
    int32_t witness = -1;  ///< Of the lowest rank of a lost host: who has noticed.
    Link link = Link::kNone;
    bool gone = false;
    bool dialing = false;
  };

  [[nodiscard]] const Peer& at(int32_t rank) const { return peers_[static_cast<size_t>(rank)]; }
  [[nodiscard]] Peer& at(int32_t rank) { return peers_[static_cast<size_t>(rank)]; }
  [[nodiscard]] bool knows(int32_t rank) const;
  [[nodiscard]] int32_t owner_of(int32_t host) const;
  [[nodiscard]] int32_t neighbour(int step) const;
  [[nodiscard]] std::vector<int32_t> wanted() const;
  void dial_wanted(Actions& actions, bool gently = false);
  void lose(int32_t host, int32_t witness, int32_t heard_from, Actions& actions);

  const int32_t rank_;
  std::vector<Peer> peers_;     ///< By rank.
  std::vector<int32_t> hosts_;  ///< The ring: lowest ranks, ascending.
};

}  // namespace corro::runtime
