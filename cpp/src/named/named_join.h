// Joins: a rank that has run out of data joins. It submits nothing more until every rank has
// joined, and stays a member meanwhile.
//
// A rank's own join (MemberJoin::State):
//
//   submits   it has not joined
//   wants     join() was called. The rank leaves a plan that it follows. It waits until the leader
//             has been told of all that it submitted before
//   said      JOIN was sent to the leader. An ENGAGE that crosses it leads back to *wants*
//   joined    JOINED has come from the leader. The rank takes part in the others' runs with an
//             identity, and throws the results away
//
// The leader (JoinRound) counts a joined rank as ready for every name, so the others go on. Once
// all have joined, the leader says OVER. One last operation of the ordered lane then ends the join
// on every member, and its result is the rank that joined last. After that the ranks submit again.
//
// All that a rank has submitted before its JOIN runs with its data. Leaving the plan takes back
// each planned operation that some member has not started, so nobody waits for the joined rank in
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "named/fusion.h"

namespace corro::named {

/// The last operation of a join: every member contributes the rank that joined last, and gets it.
[[nodiscard]] inline Fusible join_operation() {
  return {.signature = {.kind = OpKind::kAllreduce,
                        .dtype = DType::kI32,
                        .reduce_op = ReduceOp::kMax,
                        .count = 1}};
}

/// Why an operation that is no allreduce has failed: world rank `absent` has joined without it. The
/// text begins as Horovod's does.
[[nodiscard]] std::string describe_unsupported(OpKind kind, const std::string& name,
                                               int32_t absent);

/// The leader's account of who has joined. Ranks are group ranks. Loop-confined.
class JoinRound {
 public:
  explicit JoinRound(size_t members) : joined_(members) {}

  [[nodiscard]] bool anyone() const { return count_ > 0; }
  [[nodiscard]] bool has(size_t rank) const { return joined_[rank]; }
  /// All have joined.
  [[nodiscard]] bool over() const { return count_ == joined_.size(); }
  /// The rank that joined last.
  [[nodiscard]] size_t last() const { return last_; }

  /// A rank that had not joined has.
  void add(size_t rank);
  /// The next round begins.
  void reset() { *this = JoinRound(joined_.size()); }

 private:
  std::vector<bool> joined_;
  size_t count_ = 0, last_ = 0;
};

/// A member's account: its own join, and those of others. Loop-confined.
struct MemberJoin {
  enum class State : uint8_t {
    kSubmits,  ///< Has not joined.
    kWants,    ///< Joins as soon as the leader may hear of it.
    kSaid,     ///< The leader is told.
    kJoined,   ///< The leader counts it in.
  };
  State state = State::kSubmits;
  std::optional<uint64_t> token;  ///< Of the caller; none if it has given up waiting.
  std::vector<int32_t> joined;    ///< World ranks, in the leader's order.

  [[nodiscard]] bool active() const { return state != State::kSubmits; }
};

}  // namespace corro::named
