// PairLane: a group's sends and receives. They have no order among each other: each direction and
// tag of each pair of ranks is a link of its own, on which messages are matched by their sequence.
// So what goes wrong with one message, or comes too early, stays with its tag.
//
// A link's first message has sequence 0, and both ends count alike: the n-th send of a tag meets
// the n-th recv. All are started at once and end in any order. The link remembers which are over;
// the endpoint hears of the sequence below which all are, and drops what still comes for those. A
// send is over when its bytes have left, whether or not the other rank has asked for them.
//
// A send or receive needs one other rank. If that rank leaves in an orderly way, it fails alone: a
// receive without a source is one from each rank (python/corro/torch/any_source.py), and goes on
// while one of them is there.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "collective/runner.h"
#include "runtime/flight.h"

namespace corro::runtime {

/// Loop-confined. Ranks are group ranks.
class PairLane {
 public:
  PairLane(const GroupFacts& facts, EngineParts& parts) : facts_(facts), parts_(parts) {}

  [[nodiscard]] bool busy() const { return !flights_.empty(); }
  /// Begins a send or recv at once.
  void submit(const std::shared_ptr<WorkState>& work, size_t index, Time now);
  /// Moves all; true if anything moved.
  bool poll(Time now);
  /// Ends all with this cause, or with what describe_failure() makes of it.
  void fail(const Status& cause);
  void close(const Status& cause);
  /// Looks at deadlines.
  void check(Time now);
  [[nodiscard]] Time next_deadline() const;
  /// Ends those that wait for a member that has left.
  void end_departed();
  [[nodiscard]] std::optional<GroupFailure> take_failure() { return std::exchange(failure_, {}); }
  /// The lane is over: nothing that still comes for its links is kept.
  void close_links();

 private:
  struct Link {
    collective::PairLink pair;
    uint64_t next = 0;        ///< The sequence of the next message.
    uint64_t completed = 0;   ///< All below are over.
    std::set<uint64_t> over;  ///< And these above.
  };
  struct PairFlight {
    Flight flight;
    Link* link;
  };

  Link& link_of(const collective::OpRequest& request);
  void end(PairFlight& ended, const Status& status);
  void sweep();

  const GroupFacts& facts_;
  EngineParts& parts_;
  std::map<std::tuple<OpKind, int32_t, uint32_t>, Link> links_;  ///< By (kind, peer, tag).
  std::vector<std::unique_ptr<PairFlight>> flights_;
  std::optional<GroupFailure> failure_;  ///< Not told to the group yet.
};

}  // namespace corro::runtime
