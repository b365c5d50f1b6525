// Static plans of named operations: how the leader finds a step that repeats, and how a member
// follows one.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

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
class FollowedPlan {
 public:
  /// `entries` in plan order, each once; `segments` their number in each segment; `local_order`
  /// their indices in the order in which this rank submits them.
  FollowedPlan(uint32_t number, std::vector<NamedEntry> entries,
               const std::vector<size_t>& segments, const FusionOptions& fusion,
               std::vector<uint32_t> local_order);

  [[nodiscard]] uint32_t number() const { return number_; }
  void engage(uint64_t first_op) { first_op_ = next_op_ = first_op; }

  [[nodiscard]] std::optional<uint32_t> find(const std::string& name) const;
  [[nodiscard]] const NamedEntry& entry(uint32_t index) const { return entries_[index]; }
  /// True if this rank submits `index` next; then the turn moves on.
  [[nodiscard]] bool take_turn(uint32_t index);
  /// The operation that the next instance of `index` belongs to.
  [[nodiscard]] uint64_t op_of(uint32_t index) const;

  /// The instance of op_of(index) is here, or no longer.
  void add(uint32_t index) { ++present_[bucket_of_[index]]; }
  void remove(uint32_t index) { --present_[bucket_of_[index]]; }

  /// The next operation to start.
  [[nodiscard]] uint64_t next_op() const { return next_op_; }
  [[nodiscard]] const PlannedBucket& bucket(uint64_t op) const;
  /// True if all of the next operation is here.
  [[nodiscard]] bool next_complete() const;
  /// The next operation has been started.
  void start_next();
  /// The operation has failed: none of its instances is here or will come.
  void fail(uint64_t op);
  /// Moves past operations that have failed.
  void skip_failed();

 private:
  [[nodiscard]] size_t place(uint64_t op) const { return (op - first_op_) % buckets_.size(); }

  uint32_t number_;
  std::vector<NamedEntry> entries_;
  std::unordered_map<std::string, uint32_t> index_of_;
  std::vector<PlannedBucket> buckets_;
  std::vector<uint32_t> bucket_of_;  ///< By entry.
  std::vector<uint64_t> consumed_;   ///< By bucket: rounds started or failed.
  std::vector<size_t> present_;      ///< By bucket: parts of its next round that are here.
  std::vector<uint32_t> local_order_;
  size_t turn_ = 0;
  uint64_t first_op_ = 0;
  uint64_t next_op_ = 0;
  std::set<uint64_t> failed_;
};

}  // namespace corro::named
