// Joins: a rank that submits nothing more stays a member until every rank has joined.
//
// The leader counts it as ready for every name, so the others go on: in each run the rank takes
// part with an identity and throws the result away. Once all have joined, one operation of the
// ordered lane ends the join on every member, and tells who was the last.
//
//   rank                                  leader                           every member
//   join(), leaves a plan that it follows
//   says JOIN, after all it has submitted --> counts it as ready --> JOINED
//                                                                    <-- NOTED, if there are gaps
//                                         FILL: all have noted     --> the rank fills its gaps
//                                         OVER: all have joined    --> the last operation
//
// Gaps are operations below the cut of a plan that a peer has started and the rank will never
// submit. Their average is of those who submitted them, so every member has to know of the gaps
// before the rank takes part: until then no member can have the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "named/fusion.h"

namespace corro::named {

/// What ends a join: every member takes part with the rank that joined last, and gets it.
[[nodiscard]] inline Fusible join_operation() {
  return {.signature = {.kind = OpKind::kAllreduce,
                        .dtype = DType::kI32,
                        .reduce_op = ReduceOp::kMax,
                        .count = 1}};
}

/// As the first gap of a rank: it has none.
inline constexpr uint64_t kNoGap = std::numeric_limits<uint64_t>::max();

/// Why an operation that is no allreduce has failed: world rank `absent` has joined without it. The
/// text begins as Horovod's does.
[[nodiscard]] std::string describe_unsupported(OpKind kind, const std::string& name,
                                               int32_t absent);

/// The leader's account: who has joined, and who knows of whose gaps. Ranks are group ranks.
/// Loop-confined.
class JoinRound {
 public:
  explicit JoinRound(size_t members) : joined_(members) {}

  [[nodiscard]] bool anyone() const { return count_ > 0; }
  [[nodiscard]] bool has(size_t rank) const { return joined_[rank]; }
  /// All have joined, and no gap is left.
  [[nodiscard]] bool over() const { return count_ == joined_.size() && unnoted_.empty(); }
  /// Who joined last.
  [[nodiscard]] size_t last() const { return last_; }

  /// A rank that had not joined has.
  void add(size_t rank, bool has_gaps);
  /// A member knows of a rank's gaps; true if all do now. Said out of place, it counts for nothing.
  [[nodiscard]] bool note(size_t member, size_t rank);
  /// The next round begins.
  void reset() { *this = JoinRound(joined_.size()); }

 private:
  std::vector<bool> joined_;
  size_t count_ = 0, last_ = 0;
  std::map<size_t, std::vector<bool>> unnoted_;  ///< By rank with gaps: who has noted them.
};

/// A member's account: its own join, and those of others. Loop-confined.
class MemberJoin {
 public:
  enum class State : uint8_t {
    kSubmits,  ///< Has not joined.
    kWants,    ///< Joins as soon as the leader may hear of it.
    kSaid,     ///< The leader is told.
    kJoined,   ///< The leader counts it in.
  };
  State state = State::kSubmits;
  std::optional<uint64_t> token;  ///< Of the caller; none if it has given up waiting.
  std::vector<int32_t> joined;    ///< World ranks, in the leader's order.

  /// A rank has joined, with its first gap.
  void add(int32_t rank, uint64_t first_gap);
  /// So many ranks contribute nothing to this planned operation.
  [[nodiscard]] int32_t absent_from(uint64_t op) const;
  [[nodiscard]] bool active() const { return state != State::kSubmits; }

 private:
  std::vector<uint64_t> gaps_;  ///< First gaps of those who have any.
};

}  // namespace corro::named
