// Peers: the other members of the job as one engine knows them: streams, memory, losses,
// departures.
//
// A peer is *present* from add() on. It becomes *departed* when its GOODBYE is read: then the end
// of its stream is no failure; or by depart_unmet(), if it had none. It becomes *lost* when its
// stream ends without that, or when lose() says so (a pidfd, a host that vanished). Both are final;
// a peer may first depart and then be lost. remove() forgets it.
//
// A stream is made when it is first used: something is to be sent, or is awaited from another host
// (on this one a peer's end is known without a stream). Then the peer is in take_wanted(), and the
// owner gives it its stream, connect(); what is posted waits until then. A peer of this host that
// leaves says goodbye in its segment to those that it has no stream with: exactly those, so a word
// in the segment never overtakes bytes in a stream. One of another host says it in every stream
// that still comes; who dials it later finds nobody, see depart_unmet().
//
// Whatever a peer says, and whatever becomes of it, is an event in one queue, in the order in which
// this engine learned of it: poll() fills the queue and calls nobody, the engine takes events out
// and decides. So nothing that an event causes can happen in the middle of a look at a stream, and
// departed(), how_lost() and present() speak of what has been taken out: whoever asks them has also
// heard all that the peer said before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "collective/board/segment.h"
#include "obs/metrics.h"
#include "transport/endpoint.h"
#include "transport/stream.h"

namespace corro::runtime {

/// Names a process of the job for as long as the job lasts, whatever its rank is in an epoch. The
/// members a job starts with are numbered by their ranks.
using MemberId = int32_t;

/// What the engine is given of a peer.
struct EnginePeer {
  std::string where;  ///< For messages: "pid 4711" or "host:port".
  std::string host;   ///< Names its host: the same for all that share one.
  /// Set for ranks on this host; shared by the engines of a process. Declared before `stream`,
  /// which may ring a doorbell in it until its end.
  std::shared_ptr<collective::Segment> segment;
  std::unique_ptr<transport::Stream> stream;  ///< Null for the own rank, and if it is made later.
  int32_t pid = 0;  ///< Not 0: this process may read that one's memory (own entry: its own pid).
};

/// A control frame of a peer, but for GOODBYE.
struct PeerSaid {
  MemberId from;
  wire::Control control;
  [[nodiscard]] MemberId who() const { return from; }
};
/// A message without a posted receive: its signature shows what its sender called.
struct PeerStray {
  MemberId from;
  transport::MessageKey key;
  SignatureBits signature;
  [[nodiscard]] MemberId who() const { return from; }
};
struct PeerLost {
  MemberId member;
  std::string how;
  [[nodiscard]] MemberId who() const { return member; }
};
struct PeerDeparted {
  MemberId member;
  [[nodiscard]] MemberId who() const { return member; }
};
using PeerEvent = std::variant<PeerSaid, PeerStray, PeerLost, PeerDeparted>;

/// Loop-confined.
class Peers {
 public:
  /// At whom poll() looks.
  enum class Look : uint8_t {
    kOwing,     ///< Those that owe a message, or to whom something could not be sent yet.
    kReadable,  ///< All that may have something to say.
  };

  /// `connects`: streams that are missing can be made, see take_wanted().
  explicit Peers(MemberId own, bool connects = false, obs::Metrics metrics = {},
                 obs::Links links = {})
      : own_(own), connects_(connects), metrics_(std::move(metrics)), links_(std::move(links)) {}

  /// Adds a peer, or what the engine knows of its own process. Ids are not used again.
  void add(MemberId member, EnginePeer peer);
  /// Forgets a peer and closes its stream; nothing may use its endpoint any more.
  void remove(MemberId member);
  /// Peers to whom a stream is wanted now, each once.
  [[nodiscard]] std::vector<MemberId> take_wanted() { return std::exchange(wanted_, {}); }
  /// The stream of a peer that had none. It is closed if the peer is gone meanwhile; after close()
  /// it ends with a goodbye.
  void connect(MemberId member, std::unique_ptr<transport::Stream> stream);

  [[nodiscard]] MemberId own() const { return own_; }
  [[nodiscard]] const EnginePeer& peer(MemberId member) const { return entry(member).peer; }
  /// Null for the own member, one that was removed, and one without a stream if none can be made.
  [[nodiscard]] transport::Endpoint* endpoint(MemberId member) const {
    const auto index = static_cast<size_t>(member);
    const bool known = index < entries_.size() && entries_[index] != nullptr;
    return known ? entries_[index]->endpoint.get() : nullptr;
  }
  /// How it was lost; empty while it is not.
  [[nodiscard]] const std::string& how_lost(MemberId member) const { return entry(member).lost; }
  [[nodiscard]] bool departed(MemberId member) const { return entry(member).departed; }
  /// Neither lost nor departed nor removed.
  [[nodiscard]] bool present(MemberId member) const;

  /// Moves bytes; true if anything moved.
  bool poll(Look look);
  /// The same for one peer, whether it owes something or not.
  bool poll(MemberId member);
  /// The next poll() looks at this peer's stream.
  void mark_readable(MemberId member);
  /// Asks the kernel, in one call, which descriptors are readable and marks them. Null: nobody can
  /// say, and a look is the only way to find out.
  std::function<void(Peers&)> ask_readable;
  /// The oldest event that has not been taken.
  [[nodiscard]] std::optional<PeerEvent> take_event();

  /// Nobody listens at a peer of another host any more. One with which there was no stream may have
  /// left in order: unless it owes a message it counts as departed, and what is queued for it goes
  /// nowhere. False if it does not.
  bool depart_unmet(MemberId member);
  /// Declares a peer lost, with what is known of the end. Only the first time counts.
  void lose(MemberId member, const std::string& how);
  /// False if nothing can be sent there: the stream is closed, or it is this member.
  bool tell(MemberId member, const wire::Control& control);
  /// Something could not be sent yet.
  [[nodiscard]] bool unsent() const;

  /// Messages and control frames of earlier epochs are dropped from now on.
  void start_epoch(uint32_t epoch);
  /// Says goodbye to everyone, to those of this host without a stream in the own segment; sends
  /// what is left as far as it goes, and closes the streams. Returns who may sleep and has to be
  /// woken.
  [[nodiscard]] std::vector<MemberId> close(collective::SegmentHeader& own);
  /// In a forked child: closes every descriptor without a word. Nothing else may be called after
  /// it.
  void close_descriptors();

 private:
  struct Entry {
    EnginePeer peer;
    std::unique_ptr<transport::Endpoint> endpoint;
    std::string lost;  ///< As taken from the events, this and the next.
    bool departed = false;
    bool ended = false;  ///< Lost, taken or not.
    bool said_goodbye = false;
    bool readable = false;
    bool wanted = false;  ///< It has been in take_wanted().
    int fd = -1;

    /// It owes a message, and only a system call shows whether that has come.
    [[nodiscard]] bool owes_by_descriptor() const { return fd >= 0 && endpoint->awaits(); }
    /// True once, when there is no stream and one is needed.
    [[nodiscard]] bool begins_to_want_stream();
  };
  [[nodiscard]] Entry& entry(MemberId member) const;
  void hear(MemberId from, const wire::Control& control);
  bool look_at(MemberId member, Entry& entry);
  void look_for_goodbye(MemberId member, Entry& entry);
  static void turn_away(std::unique_ptr<transport::Stream> stream);

  MemberId own_;
  bool connects_;
  bool left_ = false;     ///< After close().
  obs::Metrics metrics_;  ///< All endpoints count there.
  obs::Links links_;      ///< And there, each by itself, once it has a stream.
  std::vector<MemberId> wanted_;
  std::vector<std::unique_ptr<Entry>> entries_;  ///< By member; null where there is none.
  std::vector<PeerEvent> events_;
  size_t next_event_ = 0;  ///< Those before are taken.
  uint32_t epoch_ = 0;
};

}  // namespace corro::runtime
