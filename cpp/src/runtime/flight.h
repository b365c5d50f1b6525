// Flight: one operation from its submission until it is over. This file also has what the lanes of
// an engine share to move flights.
//
//   queued    make_flight() and record_flight() have given it a place and a record. `operation` is
//             null
//   started   start() has given it its fabric's Operation. move_flight() polls that
//   voted     only with closing rounds: its result is made here, and it waits for the verdict
//   over      end_flight(): its operation has let go of all memory, and its work has heard of it
//
// A flight ends once, from any state: in order, by a mismatch or CANCEL, with its group, or taken
// back from a static plan. A failure before its vote abandons the operation.
//
// A flight that waits too long names the rank at fault. `waits_since` says since when it waits for
// one and the same rank. After 5 s that rank is a suspect, which ends nothing. In the last quarter
// of the flight's time (tell_at) the lane tells the members for whom it waits. At the deadline the
// group fails, and these words lead to the rank at fault.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/fabric.h"
#include "collective/schedule/selection.h"
#include "collective/served_links.h"
#include "graph/executor.h"
#include "named/fusion.h"
#include "obs/flight_recorder.h"
#include "obs/metrics.h"
#include "obs/timeline_log.h"
#include "runtime/peers.h"
#include "runtime/work.h"

namespace corro::runtime {

struct EngineOptions {
  int32_t rank = 0;
  int32_t size = 1;
  Duration timeout = std::chrono::seconds(60);              ///< Of every operation that names none.
  std::unique_ptr<obs::FlightRecorder> recorder = nullptr;  ///< Null: the engine makes its own.
  bool use_board = true;  ///< false: schedules over streams even among local ranks.
  std::shared_ptr<collective::Segment> segment;  ///< The own one; shared among a process's engines.
  std::vector<EnginePeer> peers;                 ///< By rank.
  std::vector<MemberId> members = {};            ///< By rank; empty: numbered by their ranks.
  /// Rings the doorbell of a local rank asleep with operations in flight.
  std::function<void(MemberId member)> wake;
  std::function<void()> poll_soon = {};  ///< Thread-safe. Null: who owns the engine polls anyway.
  /// Chooses algorithms where ranks exchange messages; the same on all ranks.
  collective::SelectionTable selection = {};
  named::FusionOptions fusion = {};  ///< Of named operations; the leader's counts.
  bool deterministic = false;        ///< Nothing that timing decides may change a result's bits.
  bool connects = false;  ///< Streams that are missing can be made: Peers::take_wanted().
  bool commit = false;    ///< Collectives end with a closing round; the same on all ranks.
};

/// A rank for which an operation has waited so long is a suspect: the counter `suspects` says so.
/// That ends nothing, since the rank may be late.
inline constexpr Duration kSuspectAfter = std::chrono::seconds(5);

/// The parts that the lanes of an engine share. The engine owns all of it, and outlives every lane.
struct EngineParts {
  EngineOptions options;
  Peers peers;
  collective::StagePool stages;
  collective::SegmentPool scratch;  ///< Of operations with a codec.
  std::unique_ptr<obs::FlightRecorder> recorder = nullptr;
  std::unique_ptr<graph::Executor> executor = nullptr;
  std::unique_ptr<collective::ServedLinks> aggregators = nullptr;  ///< Null: there are none.
  obs::Metrics metrics;                                            ///< The recorder's.
  obs::TimelineLog timeline = {};
  size_t flights = 0;          ///< Submitted and not over; begin_flight(), end_flight().
  size_t message_flights = 0;  ///< Of these, started and using endpoints.
  bool epoch_ends = false;     ///< Members leave it, each at the end of its step.

  void begin_flight() { metrics.set(obs::Metric::kInFlight, ++flights); }
  void end_flight() { metrics.set(obs::Metric::kInFlight, --flights); }
};

/// The facts of a group, which never change. Ranks are group ranks where nothing else is said.
struct GroupFacts {
  LaneKey key;       ///< Names the group between ranks, and its lane of one-shots.
  std::string name;  ///< For messages; empty if it was made without one.
  int32_t rank = 0;
  std::vector<MemberId> members;     ///< In group rank order.
  std::vector<int32_t> world_ranks;  ///< The same, as messages name them.

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(members.size()); }
  /// The group rank of a member, or -1.
  [[nodiscard]] int32_t index_of(MemberId member) const;
  [[nodiscard]] MemberId member(int32_t r) const { return members[static_cast<size_t>(r)]; }
  /// -1 for rank -1.
  [[nodiscard]] int32_t world_rank(int32_t r) const {
    return r < 0 ? -1 : world_ranks[static_cast<size_t>(r)];
  }
  [[nodiscard]] int32_t own_world_rank() const { return world_rank(rank); }
};

/// The key of another lane of the group: the same on all members. `purpose` says which.
[[nodiscard]] LaneKey derive_key(const LaneKey& group, const std::string& purpose);

/// Why a group cannot go on.
struct GroupFailure {
  Status cause;
  int32_t culprit = -1;  ///< World rank, or -1.
  bool heard = false;    ///< Another member had said so before this rank found it.
  /// The cause in the words for other members, of whom one may be the culprit; empty: the same.
  std::string told = {};
  [[nodiscard]] const std::string& words_for_others() const {
    return told.empty() ? cause.message() : told;
  }
};

struct Flight {
  std::shared_ptr<WorkState> work;  ///< Null for a service of a plan: its ticket tells the end.
  const collective::OpRequest* request = nullptr;  ///< In `work`, or the service's.
  uint64_t op = 0;
  SignatureBits signature = {};
  std::unique_ptr<collective::Operation> operation;  ///< Null until the lane has started it.
  obs::FlightRecorder::Handle record = 0;
  bool of_firing = false;  ///< The record is FiringRecords', which ends it; there is no span.
  uint64_t span = 0;       ///< In the timeline.
  graph::Ticket ticket;
  Time deadline;
  Time submitted;
  Time waits_since;          ///< Nobody else has been waited for since then.
  bool suspects = false;     ///< That rank has been noted as suspect.
  int32_t told = -1;         ///< The group rank that the others were told this waits for.
  bool by_messages = false;  ///< Counted in EngineParts::message_flights.
  bool published = false;    ///< begin_now() has begun it.
  bool voted = false;        ///< Made here; waits for the closing round.
  bool over = false;

  [[nodiscard]] Time suspect_at() const {
    return suspects ? Time::never() : waits_since + kSuspectAfter;
  }
  /// When the others are told whom this waits for: somebody waits for this rank, too.
  [[nodiscard]] Time tell_at() const { return deadline - (deadline - submitted) / 4; }
  /// Given away, but not started: its operation comes from outside.
  void start(EngineParts& parts, std::unique_ptr<collective::Operation> its, bool uses_messages);
};

/// A flight for a request, which outlives it.
[[nodiscard]] std::unique_ptr<Flight> make_flight(EngineParts& parts,
                                                  const collective::OpRequest& request, Time now);
/// The same for request `index` of a work.
[[nodiscard]] std::unique_ptr<Flight> make_flight(EngineParts& parts,
                                                  const std::shared_ptr<WorkState>& work,
                                                  size_t index, Time now);
/// Writes the flight's record, which counts the operation, and notes that it begins. Requires
/// `op`.
void record_flight(EngineParts& parts, const LaneKey& lane, Flight& flight);
[[nodiscard]] obs::OpRecord record_of(const LaneKey& lane, const collective::OpRequest& request,
                                      uint64_t op);
/// Moves a flight that has started and tells the recorder; kDone: flight.operation has the outcome.
collective::Progress move_flight(EngineParts& parts, const GroupFacts& facts, Flight& flight,
                                 bool oldest, Time now);
/// Counts the rank that a flight waits for (a group rank, or -1) as a suspect once the flight has
/// waited for kSuspectAfter. It counts again only after the flight has moved, or has waited for
/// another rank.
void suspect_awaited(EngineParts& parts, Flight& flight, int32_t awaited, Time now);
/// Ends a flight: its operation lets go of everything, its work hears of it. Once.
void end_flight(EngineParts& parts, Flight& flight, const Status& status);

/// Says it to every other member that can still hear.
void tell_members(EngineParts& parts, const GroupFacts& facts, const wire::Control& control);
[[nodiscard]] wire::Control cancel_of(const LaneKey& lane, uint64_t op, const Status& cause);

// -- texts ----------------------------------------------------------------------------------------

/// The failure of an operation, with its name, number and phase.
[[nodiscard]] Status describe_failure(const GroupFacts& facts, const Flight& flight,
                                      const Status& cause);
/// The same for an operation that had returned here without a failure.
[[nodiscard]] Status describe_past(const GroupFacts& facts, uint64_t op,
                                   const SignatureBits& signature, const Status& cause);
/// Two ranks called different operations. World ranks.
[[nodiscard]] Status disagreement(int32_t one, const SignatureBits& signature, int32_t other,
                                  const SignatureBits& others);
/// A rank that something waits for has ended in an orderly way. World rank.
[[nodiscard]] Status has_left(int32_t world_rank);
/// A deadline is over, after this rank has waited for `awaited` and so for `culprit` (group ranks;
/// -1: unknown). `did`: what the culprit did last. Here it is "waited for rank 2 (by way of rank 1)
/// for 60 s"; others are told "rank 2 was late: rank 0 waited for it", so that rank 2 does not hear
/// that it has waited for itself.
[[nodiscard]] GroupFailure deadline_failure(const GroupFacts& facts, int32_t culprit,
                                            int32_t awaited, Duration waited,
                                            const std::string& did);

}  // namespace corro::runtime
