// Engine: all groups and operations of one rank. Sans-I/O: poll(now) moves everything and never
// blocks.
//
//   engine->submit(engine->world(), work, now);
//   while (!work->done()) engine->poll(now);
//
// It owns the rooms and calls them in order: the executor starts what may start, Peers moves bytes,
// what peers said goes to the groups, groups move their operations, deadlines are looked at. The
// process's driver (driver.h) or a World (cpp/testing) decides who polls, and when to sleep.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/group_table.h"
#include "runtime/timeline_exchange.h"

namespace corro::runtime {

/// Externally synchronized: one thread at a time (the holder of the baton), any thread over time.
class Engine final {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create(EngineOptions options);

  [[nodiscard]] Group& world() { return groups_.world(); }
  [[nodiscard]] Peers& peers() { return parts_.peers; }
  /// Thread-safe, both, and valid as long as the engine.
  [[nodiscard]] const std::shared_ptr<collective::Segment>& segment() const {
    return parts_.options.segment;
  }
  [[nodiscard]] obs::FlightRecorder& recorder() { return *parts_.recorder; }

  /// Makes a group of world ranks, in the given rank order; null if this rank is no member. Members
  /// make the same groups in the same order; groups with a `name` need only agree among those of
  /// that name. Does not communicate: the first operation shows whether the members are the same.
  Result<Group*> create_group(const std::vector<int32_t>& world_ranks,
                              const std::string& name = "") {
    return groups_.create(name, world_ranks, now_);
  }
  /// FAILED_PRECONDITION while operations are in flight. Its memory is freed once all members are
  /// done with it.
  Status destroy_group(Group& group) { return groups_.destroy(group); }
  /// Loads a plan of as many ranks as the group, which all members load; see PlanPart::make().
  Result<LoadedPlan*> load(Group& group, const graph::Plan& plan, const LoadOptions& options) {
    return groups_.load(group, plan, options, now_);
  }
  /// Stops the plan on all ranks if something is in flight, and forgets it.
  void unload(Group& group, LoadedPlan& plan) { groups_.unload(group, plan, now_); }
  /// Every rank sets the same, before the first operation of any group that lives on.
  void set_selection(collective::SelectionTable table);
  /// Large allreduces of the world may use these from now on: before the first operation of the
  /// world, on every rank alike.
  void serve(std::unique_ptr<collective::ServedLinks> aggregators);
  /// The next epoch: `members` by their world rank in it; the peers among them have been added.
  /// Groups of earlier epochs fail with CANCELLED and are to be destroyed, but for their worlds,
  /// which go with their last plan. Arenas stay, and with them the gradients of buckets, whose sets
  /// are made anew over the same memory.
  Status start_epoch(uint32_t epoch, std::vector<MemberId> members);

  /// Queues the work's operations, in the order of these calls or, if the work is named, by their
  /// names; invalid ones and those of a dead group make it done at once.
  void submit(Group& group, const std::shared_ptr<WorkState>& work, Time now);

  /// An operation that Group::begin_now() has begun, and whose peers are late, goes on as `work`,
  /// whose only request is the same.
  void become(Group& group, NowOperation& begun, const std::shared_ptr<WorkState>& work, Time now);

  /// Moves everything; true if anything moved. Deadlines are checked against `now`.
  bool poll(Time now);
  /// Operations were submitted and are not over.
  [[nodiscard]] bool in_flight() const { return parts_.flights > 0; }
  /// No operation waits or is in flight, and nothing is left to send.
  [[nodiscard]] bool idle() const;
  /// The earliest time at which poll() has something to do by itself: a deadline, mostly.
  [[nodiscard]] Time next_deadline() const { return groups_.next_deadline(); }
  /// True while operations of this engine use streams, so that their descriptors are worth
  /// watching.
  [[nodiscard]] bool uses_streams() const {
    return parts_.message_flights > 0 || parts_.peers.unsent();
  }

  /// What this rank notes, on its way to rank 0. It hears of others in poll().
  [[nodiscard]] TimelineExchange& timeline() { return timeline_; }

  /// A member's process or host is gone. Takes in all it has left behind first; if it had said
  /// goodbye, only operations that still wait for it fail, else it is lost.
  void peer_ended(MemberId member, const std::string& how);
  /// This rank cannot go on: every group fails, for its other members too.
  void fail_all(const Status& cause);
  /// A new epoch comes, and members leave this one when they are at the end of a step: who leaves
  /// does not stop a plan for a reason that others have yet to hear.
  void expect_epoch_end();
  /// A new epoch comes, for this reason: every group fails with ABORTED, as it does on the other
  /// members, who hear of it by themselves.
  void end_epoch(const std::string& why);
  /// Sets the sleeping word as deep as the operations in flight need, or clears it.
  void set_sleeping(bool asleep);
  /// In a forked child: closes every descriptor without a word to the peers. Nothing else may be
  /// called after it.
  void close_descriptors();
  /// Says goodbye to the peers and fails what is in flight, and all that is submitted later, with
  /// CANCELLED.
  void close();

 private:
  explicit Engine(EngineOptions options);
  bool take_events();

  EngineParts parts_;
  GroupTable groups_;
  TimelineExchange timeline_;
  Time now_;
  uint32_t idle_polls_ = 0;  ///< In a row.
  bool skipped_ = false;     ///< The last poll did not look at the streams: it had launched.
  bool departures_ = false;  ///< A peer has left: what waits for it has to end.
  bool closed_ = false;
};

}  // namespace corro::runtime
