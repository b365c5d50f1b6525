// ClosingRound: with CORRO_COMMIT=1 a collective succeeds on all members that live, or fails on all
// of them. One lane's rounds on one rank, without I/O. docs/design/0004-closing-round.md.
//
// The life of an operation here, in the order in which it can happen:
//
//   open ---- vote() ----> voted ---- the decider's COMMIT ----------------> committed
//     |                      |------- the decider's CANCEL, SETTLED -------> failed
//     |                      '------- the decider is lost, or silent ------> outcome unknown
//     '--- fails before its vote: the lane cancels it; it can never be committed
//
// Group rank 0 decides. It counts one vote from each member, its own included; when all are there
// with one signature it says COMMIT to everyone, and nothing else makes an operation succeed. With
// two signatures it says CANCEL. When the group fails, the decider says SETTLED once: what it has
// not committed until then has failed everywhere. It sends SETTLED behind its COMMITs on the same
// streams, so a member that reads SETTLED has read every COMMIT before it.
//
// A member that has voted may not end the operation by itself: the decider may have committed
// already, and others may have returned. So after a failure it waits for the decider's word; if the
// decider is lost, or silent for kVerdictTime, nobody can say any more, and the error says so.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/signature_bits.h"
#include "base/status.h"
#include "wire/frame.h"

namespace corro::runtime {

/// Loop-confined. Ranks are group ranks.
class ClosingRound {
 public:
  /// How long a member waits for the decider's word after a failure.
  static constexpr Duration kVerdictTime = std::chrono::seconds(2);
  static constexpr int32_t kDecider = 0;

  ClosingRound(int32_t rank, int32_t size) : rank_(rank), size_(size) {}

  /// This rank's result of `op` is made; from now on only a verdict ends the operation.
  void vote(uint64_t op, const SignatureBits& signature);
  /// A member's VOTE; only the decider is told.
  void hear_vote(int32_t from, uint64_t op, const SignatureBits& signature);
  /// The decider's COMMIT.
  void hear_commit(uint64_t op);
  /// The decider's SETTLED.
  void hear_settled();
  /// The operation has failed here before its vote, or was cancelled: its votes count no more.
  void forget(uint64_t op);
  /// The group has failed: the decider settles, the others wait until kVerdictTime from now.
  void fail(Time now);
  /// The decider is lost, or has left.
  void lose_decider();
  /// Ends the wait for the decider's word once its time is over.
  void check(Time now);
  [[nodiscard]] Time next_check() const { return voted_.empty() ? Time::never() : settle_by_; }

  /// Whom `op`, voted for here, waits for: a group rank.
  [[nodiscard]] int32_t waiting_for(uint64_t op) const;

  /// What to send next: to the decider (VOTE), or to all other members.
  struct Message {
    bool to_all = false;
    wire::ControlKind kind = wire::ControlKind::kVote;
    uint64_t op = 0;
    SignatureBits signature = {};
  };
  [[nodiscard]] std::optional<Message> take_message();
  /// How an operation that was voted for here ends.
  struct Verdict {
    enum class Kind : uint8_t { kCommitted, kDisagree, kFailed, kUnknown };
    uint64_t op = 0;
    Kind kind = Kind::kCommitted;
    // Of kDisagree: two group ranks and what they called.
    int32_t one = -1, other = -1;
    SignatureBits signature = {}, others = {};
  };
  [[nodiscard]] std::optional<Verdict> take_verdict();

 private:
  struct Votes {
    int32_t first = -1;
    SignatureBits signature = {};
    std::set<int32_t> from;
  };
  void end_voted(Verdict::Kind kind);

  const int32_t rank_, size_;
  std::map<uint64_t, Votes> votes_;  ///< On the decider.
  std::set<uint64_t> voted_;         ///< Voted for here, without a verdict.
  bool failed_ = false;
  Time settle_by_ = Time::never();
  std::deque<Message> messages_;
  std::deque<Verdict> verdicts_;
};

}  // namespace corro::runtime
