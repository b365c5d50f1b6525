// Group: a communicator as the engine sees it: members, lane, board or links, operations in flight.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collective/board.h"
#include "collective/runner.h"
#include "collective/selection.h"
#include "graph/lane.h"
#include "obs/flight_recorder.h"
#include "runtime/named_channel.h"
#include "runtime/work.h"

namespace corro::runtime {

class Group;

/// A group's lanes for named operations have its own lane's number with one of these bits.
inline constexpr uint32_t kOrderedLaneBit = 1U << 30U;
inline constexpr uint32_t kPlannedLaneBit = 1U << 29U;

/// The lane of the group that a lane belongs to.
[[nodiscard]] constexpr uint32_t group_lane(uint32_t lane) {
  return lane & ~(collective::kPairLaneBit | kOrderedLaneBit | kPlannedLaneBit);
}

/// A rank that an operation has waited for so long is noted as suspect.
inline constexpr Duration kSuspectAfter = std::chrono::seconds(5);

/// One operation of a work, from its submission until it is over.
struct Flight {
  Group* group = nullptr;
  std::shared_ptr<WorkState> work;
  const collective::OpRequest* request = nullptr;  ///< In `work`.
  uint64_t op = 0;
  SignatureBits signature = {};
  std::unique_ptr<collective::Operation> operation;  ///< Null until the lane has started it.
  obs::FlightRecorder::Handle record = 0;
  graph::Ticket ticket;
  Time deadline;
  Time submitted;
  Time waits_since;        ///< Nobody else has been waited for since then.
  bool suspects = false;   ///< That rank has been noted as suspect.
  int32_t told = -1;       ///< The world rank that the others were told this waits for.
  bool published = false;  ///< Its line is on the board already.
  bool voted = false;      ///< Made here; waits for the closing round.
  bool over = false;

  [[nodiscard]] Time suspect_at() const {
    return suspects ? Time::never() : waits_since + kSuspectAfter;
  }
  /// When the others are told whom this waits for: somebody waits for this rank, too.
  [[nodiscard]] Time tell_at() const { return deadline - (deadline - submitted) / 4; }
};

/// What is remembered of an operation that is over, to judge messages that come late.
struct PastOperation {
  uint64_t op = UINT64_MAX;
  SignatureBits signature = {};
  bool failed = false;
};

/// The closing rounds of a group (CORRO_COMMIT=1). docs/design/0004-closing-round.md.
struct ClosingRounds {
  struct Votes {
    int32_t first = -1;  ///< The world rank whose signature the others are compared with.
    SignatureBits signature = {};
    std::set<int32_t> from;  ///< World ranks.
  };
  std::map<uint64_t, Votes> votes;  ///< On the rank that decides: by op id.
  /// After a loss: how many members were gone for a world rank when it said all that it knows.
  std::map<int32_t, int32_t> reports;
  /// The world rank that was told all that is known here, and how many members were gone then.
  std::pair<int32_t, int32_t> reported = {-1, 0};
  bool follows = false;            ///< This rank decides now, in place of one that is lost.
  Time settle_by = Time::never();  ///< After a failure: the end of waiting for reports, or a word.
  bool settled = false;
};

/// Loop-confined. Made and destroyed by the engine.
class Group {
 public:
  uint32_t lane = 0;  ///< Agreed by all members: names the group on the wire and on the board.
  graph::LaneId executor_lane = 0;
  int32_t rank = 0;
  std::vector<int32_t> members;  ///< World ranks in group rank order.

  std::unique_ptr<collective::Board> board;  ///< Set if all members share this host.
  collective::Links links;
  /// The engine's; chooses the algorithms of schedules. Set with forget_schedules().
  const collective::SelectionTable* selection = nullptr;

  uint64_t next_op = 0;
  std::deque<std::unique_ptr<Flight>>
      flights;  ///< Collectives in order of op id; those that are over stay until first.
  std::vector<std::unique_ptr<Flight>> pairs;  ///< send and recv, in no order.
  std::map<std::tuple<OpKind, int32_t, uint32_t>, uint64_t>
      pair_sequences;  ///< By (kind, peer, tag).

  Status failed;  ///< Not OK: the group is dead, with this cause.
  Status
      next_error;  ///< For the next call: an operation that had already returned failed elsewhere.
  std::map<uint64_t, Status>
      cancelled;  ///< Operations failed elsewhere that have not started here.
  std::map<uint64_t, std::pair<int32_t, SignatureBits>>
      early;  ///< Not started here: a (world rank, signature) seen.
  std::map<int32_t, std::pair<uint64_t, int32_t>>
      waiting;  ///< By world rank: the operation in which it waits for long, and for whom.
  std::array<PastOperation, 64> past;  ///< By op id modulo its size.
  ClosingRounds closing_rounds;

  // Named operations run on two groups of their own, with the same members, boards and op ids
  // apart.
  std::unique_ptr<NamedChannel> named;     ///< Made with the first named operation.
  std::array<Group*, 2> named_lanes = {};  ///< By NamedLane; null until something runs there.
  Group* owner = nullptr;                  ///< Set in such a lane: the group it belongs to.
  std::set<uint64_t> given_up;  ///< In a lane: operations that take their op id and do not run.

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(members.size()); }
  /// Operations below this are over here.
  [[nodiscard]] uint64_t completed() const {
    return flights.empty() ? next_op : flights.front()->op;
  }
  [[nodiscard]] bool busy() const { return !flights.empty() || !pairs.empty(); }
  [[nodiscard]] bool contains(int32_t world_rank) const { return index_of(world_rank) >= 0; }
  /// The group rank of a world rank, or -1.
  [[nodiscard]] int32_t index_of(int32_t world_rank) const;
  /// The collective in flight (started or not) with this op id, or null.
  [[nodiscard]] Flight* find(uint64_t op) const;
  [[nodiscard]] PastOperation& past_of(uint64_t op) { return past[op % past.size()]; }
  /// How operations of each size run, as text for people.
  [[nodiscard]] std::string describe_selection() const;
  /// After another selection.
  void forget_schedules() { schedules_.clear(); }
  /// The board if the operation can run on it, else links.
  [[nodiscard]] std::unique_ptr<collective::Operation> make_operation(const Flight& flight);

 private:
  [[nodiscard]] std::shared_ptr<const collective::Schedule> schedule_for(
      const collective::OpRequest& request);
  /// Schedules of even operations, by (signature, in place); bounded.
  std::map<std::pair<uint64_t, bool>, std::shared_ptr<const collective::Schedule>> schedules_;
};

}  // namespace corro::runtime
