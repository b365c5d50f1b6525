// Connector: makes the connections of a rank when they are first used, and lets other ranks make
// theirs. It owns the listeners, which live as long as the engine.
//
// A stream to a rank is *absent*, *dialled*, or *there*; there is at most one, for ever. dial()
// makes an absent one dialled: it is tried again and again until it is there, or nobody listens
// there any more. A rank that dials this one is admitted if its stream is absent. If both dial at
// once, that of the higher rank counts: the lower one admits it and hangs up its own; the higher
// one turns the other away. Whoever dials uses a stream only once the other side has said that it
// has taken it, so both agree which one it is.
//
// One epoll set, to nest into that of the progress thread. While nothing is dialled and no stranger
// waits it has no timer. Strangers are bounded by number and by time (mesh_admission.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "transport/introductions.h"
#include "transport/mesh_admission.h"
#include "transport/mesh_dialer.h"
#include "transport/mesh_place.h"

namespace corro::transport {

/// Loop-confined. Where it is, it stays: its parts know each other.
class Connector final {
 public:
  static Result<std::unique_ptr<Connector>> create(const MeshOptions& options, Doors doors,
                                                   Time started);
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  /// A stream to the rank is wanted. Does nothing if it is there or dialled.
  void dial(int32_t rank, Time now);
  /// The rank is lost, or has left: it is not dialled any more.
  void forget(int32_t rank);

  /// Readable while poll() has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.fd(); }
  /// Handles what has happened. Never blocks.
  void poll(Time now);
  /// When poll() has something to do by itself; poll_fd() becomes readable then.
  [[nodiscard]] Time next_wake() const;
  /// Streams and connections for liveness that are there since the last call.
  [[nodiscard]] std::vector<JoinedPeer> take_joined() { return std::exchange(joined_, {}); }
  /// Ranks of other hosts that were dialled, and where nobody listens any more.
  struct Gone {
    int32_t rank;
    std::string how;
  };
  [[nodiscard]] std::vector<Gone> take_gone() { return std::exchange(gone_, {}); }
  /// Why there is no stream to a rank that is dialled; empty otherwise.
  [[nodiscard]] std::string trouble(int32_t rank) const;

  [[nodiscard]] Introductions& introductions() { return introductions_; }
  [[nodiscard]] const MeshOptions& options() const { return options_; }
  [[nodiscard]] const PeerPlace& place(int32_t rank) const {
    return *introductions_.places()[static_cast<size_t>(rank)];
  }
  [[nodiscard]] bool is_local(int32_t rank) const;
  /// All ranks are known: what was borrowed for that is given back.
  void finish_joining();

  /// In a forked child: closes every descriptor without a word.
  void abandon_in_child();

 private:
  Connector(const MeshOptions& options, Doors doors, io::Epoll epoll, io::Epoll introductions,
            io::Alarm alarm, Time started);
  Status start();
  void handle(uint64_t event, Time now);
  void sort_joined(Time now);
  void advance_dialers(Time now);
  [[nodiscard]] bool wants(int32_t rank, wire::Purpose purpose) const;

  MeshOptions options_;
  Doors doors_;
  io::Epoll epoll_;
  io::Alarm alarm_;
  Admission admission_;
  Introductions introductions_;
  std::vector<bool> there_;  ///< By rank: its stream has been made, or it is gone.
  std::map<int32_t, Dialer> dialers_;
  std::vector<JoinedPeer> joined_;
  std::vector<Gone> gone_;
  Time doors_open_ = {};  ///< Later than now: no descriptor was left to accept anybody.
};

}  // namespace corro::transport
