// GroupLane: one lane of a group: collectives in one order that all members share.
//
// An operation on this rank:
//
//   queued    submit() has given it the next op id and a place in the executor
//   started   its turn has come, and its fabric runs it. The executor starts at most kLines,
//             and of large ones kSlots. fire() starts a service of a loaded plan at once
//   voted     only with closing rounds: its result is made here, and it waits for the verdict
//   over      it stays in flights_ until all before it are over, too. Then completed() moves past
//             it, and the fabric may use again what it used
//
// An op id is a place in the order of submission, so the same id is the same operation on every
// member without a message.
//
// Members are ahead of each other and behind, so their words may come before, while or after the
// operation runs here:
//
//   a stray   a message that no receive waits for. It shows what its sender called. If that
//             differs, the operation fails here and, by CANCEL, everywhere
//   CANCEL    ends the operation. If it had succeeded here, the next call gets the error
//             (take_next_error())
//   WAITING   says for whom a member waits, for the message of a deadline
//   VOTE, COMMIT, SETTLED are the closing round's (closing_round.h)
//
// LaneNews keeps words that come before the start, and remembers operations that are over. If the
// group cannot go on, the lane only says so (take_failure()). The group then ends all its lanes by
// fail().
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "runtime/closing_round.h"
#include "runtime/flight.h"
#include "runtime/flight_queue.h"
#include "runtime/lane_news.h"

namespace corro::runtime {

/// Loop-confined. Ranks are group ranks.
class GroupLane final : public graph::Lane {
 public:
  /// A lane of one-shots: it adds itself to the engine's executor.
  GroupLane(const LaneKey& key, const GroupFacts& facts, EngineParts& parts,
            std::unique_ptr<collective::Fabric> fabric);
  /// A lane of a loaded plan's services, `plan` being null until serve() names their executor.
  GroupLane(const LaneKey& key, const GroupFacts& facts, EngineParts& parts,
            std::unique_ptr<collective::Fabric> fabric, graph::Executor* plan);
  ~GroupLane() override;

  [[nodiscard]] const LaneKey& key() const { return key_; }
  /// Moved away when the lane is over and others may still read its memory.
  [[nodiscard]] std::unique_ptr<collective::Fabric>& fabric() { return fabric_; }
  [[nodiscard]] const FlightQueue& flights() const { return flights_; }

  /// Gives request `index` of the work its place.
  void submit(const std::shared_ptr<WorkState>& work, size_t index, Time now);
  void serve(graph::Executor& plan) { executor_ = &plan; }
  /// Begins a firing of a service, whose request stays until the firing is complete. `record`: that
  /// of the firing; none: it is recorded as an operation.
  void fire(const collective::OpRequest& request, graph::Ticket ticket, Time now,
            std::optional<obs::FlightRecorder::Handle> record);
  /// The next op id takes its turn without running.
  void skip();
  /// Lets go of operations from `from` on, which some member has not begun and will not begin, so
  /// nobody has their results: their works hear nothing. Ids below `resume` are used up.
  void take_back(uint64_t from, uint64_t resume);
  /// Moves what has started; true if anything moved.
  bool poll(Time now);

  /// A member's message of `op`, past, present or future, shows what it called.
  void judge(int32_t from, uint64_t op, const SignatureBits& signature);
  void hear(int32_t from, const wire::Control& control);

  /// Ends what runs or waits, but for votes without a verdict. Called again when a member is gone.
  void fail(const Status& cause, Time now);
  /// Ends everything, votes too.
  void close(const Status& cause);
  /// Looks at deadlines.
  void check(Time now);
  [[nodiscard]] Time next_deadline() const;
  /// The first member that has left and that an operation waits for, or -1.
  [[nodiscard]] int32_t awaited_that_left() const;
  [[nodiscard]] std::optional<GroupFailure> take_failure() { return std::exchange(failure_, {}); }
  /// For the next call: an operation that had returned here failed elsewhere.
  [[nodiscard]] Status take_next_error() { return std::exchange(news_.next_error, Status()); }

 private:
  friend class NowOperation;

  void start(Time /*now*/, const graph::Work& work) override { work.launch(work.firing); }
  void queue(Flight& flight);
  void launch(Flight& flight);
  void conclude(Flight& flight, const Status& outcome);
  void end(Flight& flight, const Status& status);
  void sweep();
  void cancel(int32_t from, uint64_t op, const Status& cause);
  void carry_closing();
  void expire(const Flight& flight, Time now);

  const LaneKey key_;
  const GroupFacts& facts_;
  EngineParts& parts_;
  std::unique_ptr<collective::Fabric> fabric_;
  const bool by_messages_;
  std::optional<ClosingRound> closing_;
  graph::Executor* executor_;
  std::optional<graph::LaneId> one_shots_;  ///< In the engine's executor; not of a plan's lane.
  FlightQueue flights_;
  LaneNews news_;
  std::optional<GroupFailure> failure_;  ///< Not told to the group yet.
  bool failed_ = false;
  Status failure_cause_;  ///< Once failed_.
};

/// A small collective that starts, and mostly ends, at once: no flight, no memory. The request is
/// borrowed.
class NowOperation {
 public:
  /// Starts it if nothing is in flight on the lane; false if it has to be submitted.
  bool begin(GroupLane& lane, const collective::OpRequest& request);
  /// True once every member is there: the result is made and `status` set.
  bool finish(Status& status);
  /// Its peers are late: it goes on as `work`, whose only request is the same.
  void become(const std::shared_ptr<WorkState>& work, Time now);

 private:
  GroupLane* lane_ = nullptr;
  std::optional<collective::BoardExchange> exchange_;
  obs::FlightRecorder::Handle record_ = 0;
  uint64_t span_ = 0;
  graph::Ticket ticket_;
};

}  // namespace corro::runtime
