// Static plans of named operations: a step that repeats runs without messages.
//
// RoundFinder finds the step, on the leader. It watches the order in which operations run. As long
// as each operation equals the one a round before it, the round goes on repeating. An operation
// that does not begins a new guess: a round that goes back to where this operation was last seen.
//
// FollowedPlan runs the step, on each member:
//
//   proposed   it is made when the leader proposes it. Nothing starts
//   engaged    engage(). The member adds its submissions, in the order that it had in the last
//              rounds. A bucket starts when all its parts are here and the bucket before it has
//              started
//   frozen     freeze(). Nothing starts any more, and next_op() says how far this member is. The
//              queue deletes the plan on CUT, when all members have frozen
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/executor.h"
#include "named/fusion.h"
#include "named/named_messages.h"

namespace corro::named {

/// Watches the order of operations for a round that repeats. Loop-confined; O(1) for each
/// operation.
class RoundFinder {
 public:
  static constexpr size_t kMaxRound = 8192;

  /// The next operation of the order; NamedRef::kNone for one without a number, which no round can
  /// hold.
  void add(uint32_t number);
  /// The operations so far and those to come are announced in different runs.
  void end_run();
  void reset();

  /// How often the last round has been seen in a row; 0 or 1: nothing repeats.
  [[nodiscard]] uint64_t rounds() const { return length_ == 0 ? 0 : 1 + matched_ / length_; }
  /// The last operation was the last of a round that repeats.
  [[nodiscard]] bool at_boundary() const { return length_ > 0 && matched_ % length_ == 0; }
  /// Operations of a round.
  [[nodiscard]] size_t length() const { return length_; }
  /// The round, cut where the last two rounds were both cut by runs: what shares a segment has been
  /// ready at the same time on every rank at least once. Empty if an operation occurs twice in it.
  /// Requires two rounds and a boundary.
  [[nodiscard]] std::vector<std::vector<uint32_t>> segments() const;

 private:
  struct Seen {
    uint32_t number;
    bool run_ends;
  };
  [[nodiscard]] const Seen& at(uint64_t position) const { return seen_[position - first_]; }

  std::deque<Seen> seen_;
  uint64_t first_ = 0;                           ///< Position of seen_.front().
  std::unordered_map<uint32_t, uint64_t> last_;  ///< Number -> last position.
  size_t length_ = 0;                            ///< Of the round that is being matched; 0: none.
  uint64_t matched_ = 0;  ///< So many operations in a row equal the one `length_` before.
};

/// A bucket of a plan: which operations, and where in its buffer.
struct PlannedBucket {
  Fusible as_one;
  std::vector<BucketPart> parts;  ///< BucketPart::index counts the plan's operations.
};

/// A plan on one member: which operation comes when, here and in the agreed order. Operation ids of
/// the planned lane count buckets, round after round. Loop-confined.
///
/// It is a graph::Executor over two services for each bucket: *fill*, in flight until all parts of
/// the bucket's next instance are here, and *start*, on the lane in agreed order, which hands the
/// bucket out. A micro-batch is a round.
class FollowedPlan final : private graph::Lane {
 public:
  /// `entries` in plan order, each once; `segments` their number in each segment; `local_order`
  /// their indices in the order in which this rank submits them.
  FollowedPlan(uint32_t number, std::vector<NamedEntry> entries,
               const std::vector<size_t>& segments, const FusionOptions& fusion,
               std::vector<uint32_t> local_order);

  [[nodiscard]] uint32_t number() const { return number_; }
  /// Begins the first round; its first operation has this id.
  void engage(uint64_t first_op);

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  [[nodiscard]] std::optional<uint32_t> find(const std::string& name) const;
  [[nodiscard]] const NamedEntry& entry(uint32_t index) const { return entries_[index]; }
  /// True if this rank submits `index` next; then the turn moves on.
  [[nodiscard]] bool take_turn(uint32_t index);
  [[nodiscard]] const PlannedBucket& bucket(uint64_t op) const { return buckets_[place(op)]; }

  /// The first operation that has not started. Requires that all starts have been taken.
  [[nodiscard]] uint64_t next_op() const;

  /// The next instance of `index` is here.
  void add(uint32_t index);
  /// The next operation to start, in order: its parts are here no longer. Nothing starts but by
  /// this.
  [[nodiscard]] std::optional<uint64_t> take_start();

  /// Starts nothing more. Requires that all starts have been taken.
  void freeze() { frozen_ = true; }
  [[nodiscard]] bool frozen() const { return frozen_; }
  /// The bucket that starts next.
  [[nodiscard]] const PlannedBucket& next_bucket() const { return buckets_[next_bucket_]; }

 private:
  void start(Time now, const graph::Work& work) override;
  void fill(size_t bucket);
  [[nodiscard]] size_t place(uint64_t op) const { return (op - first_op_) % buckets_.size(); }
  [[nodiscard]] uint64_t op_at(uint32_t round, size_t bucket) const {
    return first_op_ + uint64_t{round} * buckets_.size() + bucket;
  }

  uint32_t number_;
  std::vector<NamedEntry> entries_;
  std::unordered_map<std::string, uint32_t> index_of_;
  std::vector<PlannedBucket> buckets_;
  std::vector<uint32_t> bucket_of_;                    ///< By entry.
  std::vector<std::optional<graph::Ticket>> filling_;  ///< By bucket: its fill in flight.
  std::vector<size_t> present_;  ///< By bucket: parts of its next instance that are here.
  std::vector<uint32_t> local_order_;
  size_t turn_ = 0;
  size_t next_bucket_ = 0;
  uint64_t first_op_ = 0;
  bool frozen_ = false;
  std::deque<uint64_t> starts_;
  std::unique_ptr<graph::Executor> executor_;
};

}  // namespace corro::named
