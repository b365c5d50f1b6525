// Joins: a rank that submits nothing more stays a member until every rank has joined.
//
// The leader counts it as ready for every name, so the others go on: in each run the rank takes
// part with an identity and throws the result away. Once all have joined, one operation of the
// ordered lane ends the join on every member, and tells who was the last.
//
//   rank                                  leader                           every member
//   join(), leaves a plan that it follows
//   says JOIN, after all it has submitted --> counts it as ready --> JOINED
//                                         OVER: all have joined    --> the last operation
//
// A plan that is left takes back what not every member has started. So the rank owes nothing when
// it joins: what it has submitted runs with its data, the rest is decided without it.
#pragma once

#include <cstddef>
#include <cstdint>
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
  /// Who joined last.
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
