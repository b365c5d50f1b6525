// NamedQueue: a member's side of named operations. A state machine without I/O or clock. It sends
// nothing unless something has been submitted.
//
//   CORRO_TRY(queue.submit({"grad.7", op}, token, now));
//   while (auto bytes = queue.take_announcement()) send_to_leader(*bytes);
//   CORRO_TRY(queue.receive(decision));
//   while (auto start = queue.take_start()) begin(start->lane, start->op, start->parts);
//   while (auto failure = queue.take_failure()) end(failure->tokens, failure->status);
//
// A submission while the group negotiates; the leader's decisions are in capitals:
//
//   pending     submit() has taken it, and the leader is told
//   started     RUN: it starts on the ordered lane
//   failed      FAIL
//   withdrawn   its owner has given it up, and the leader is told. WITHDRAWN takes it away. If a
//               RUN was on its way, nothing starts here, and the operation is cancelled on the
//               members
//
// A plan is a round that repeats. It runs on the planned lane without messages:
//
//   PROPOSE     the queue accepts if this rank submitted its last two rounds in one order
//   ENGAGE      pending submissions belong to the plan. Nothing is announced from here on
//   submit()    if it is the next in this rank's order, it counts. A bucket that is complete starts
//   freeze      the queue starts nothing more, and tells the leader how far it is. It does so on
//               any other submission, on FREEZE, on join(), on hurry() or withdraw() of a
//               submission that the plan holds back, and when the plan has held one back for
//               options.patience
//   CUT         the plan is over. An operation that every member has started runs. An operation
//               that only some have started is taken back. Its submissions are pending again, and
//               announced with all others in the order of submission
//
// An operation that is taken back has ended nowhere and has changed no caller's memory, since both
// take all members. So the queue remembers planned operations until retire_planned().
//
// A rank that has joined (named_join.h) submits nothing until OVER. Buckets run with identities in
// its place.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "named/fusion.h"
#include "named/named_join.h"
#include "named/named_messages.h"
#include "named/named_plan.h"

namespace corro::named {

/// Which of a group's two communicators an operation runs on; each has its own op ids and starts in
/// their order.
enum class NamedLane : uint8_t { kOrdered, kPlanned };

/// An operation to start now. The same op id is the same operation on every member.
struct NamedStart {
  /// One that this rank has submitted.
  struct Part {
    uint64_t token = 0;
    uint64_t offset_bytes = 0;
  };
  NamedLane lane = NamedLane::kOrdered;
  uint64_t op = 0;
  Fusible as_one;
  /// One: run it in place. Several: at these offsets of a zero-filled buffer.
  std::vector<Part> parts;
  int32_t absent = 0;  ///< So many members have joined without it.
  /// This rank has joined without some of it, or all: its buffer is filled with identities, and
  /// `parts` are those it has.
  bool gives_identity = false;
  std::string name = {};     ///< Of the first, if it gives an identity.
  int32_t last_joined = -1;  ///< Else: everyone has joined, this world rank as the last.
  /// Set: nothing starts. Planned operations from `op` on are taken back, and the next one has this
  /// id. `parts` are pending again: their tokens come back once more.
  std::optional<uint64_t> resume = {};
};

/// Submissions that end without having run.
struct NamedFailure {
  std::vector<uint64_t> tokens;
  Status status;
  /// Set if members may already be inside this operation of the ordered lane: it has to be
  /// cancelled there, and its op id counts as used.
  std::optional<uint64_t> cancelled;
};

struct NamedQueueOptions {
  int32_t rank = 0;  ///< As decisions name it (the world rank).
  /// A submission that its plan holds back for so long ends the plan: somebody may be waiting for
  /// it.
  Duration patience = std::chrono::seconds(1);
};

/// A member's side. Errors of receive() mean that the leader does not keep to the protocol: the
/// group cannot go on. Loop-confined.
class NamedQueue {
 public:
  explicit NamedQueue(NamedQueueOptions options = {}) : options_(options) {}

  /// Takes in a submission; `token` is handed back when it starts or fails. ALREADY_EXISTS while
  /// the name has not started; INVALID_ARGUMENT for a name that is empty or too long.
  [[nodiscard]] Status submit(NamedEntry entry, uint64_t token, Time now);
  /// The submission's owner no longer waits for it (a deadline). The leader is told, and takes it
  /// back or has decided already to run it: then it comes back as a failure that cancels the
  /// operation.
  void withdraw(const std::string& name, uint64_t token);
  /// The same, whatever its name is, for one that was taken back and had failed here.
  void withdraw(uint64_t token);
  /// Planned operations below this id have ended here.
  void retire_planned(uint64_t below);
  /// A submission's deadline comes near: asks the leader who has not submitted it, for describe().
  void ask(const std::string& name);
  /// A caller blocks until this submission has run: if its plan holds it back, the plan is left at
  /// once.
  void hurry(const std::string& name);
  /// Nothing is submitted here from now on until every member has joined. `token` is handed back by
  /// the operation that ends the join; until then this rank takes part in the others' operations.
  /// ALREADY_EXISTS if it has joined and somebody waits for that.
  [[nodiscard]] Status join(uint64_t token);
  /// The caller of join() no longer waits. The rank stays joined, and join() may be called again.
  void forget_join() { join_.token.reset(); }
  /// The world rank that was last in a join that ended while nobody waited for it here: the next
  /// join() is over at once. Until then nothing is submitted here.
  [[nodiscard]] std::optional<int32_t> take_missed_join() {
    return std::exchange(missed_join_, std::nullopt);
  }
  /// Has joined, and not everyone has.
  [[nodiscard]] bool joins() const { return join_.active(); }
  /// The world ranks that have joined, as far as is known here.
  [[nodiscard]] const std::vector<int32_t>& joined() const { return join_.joined; }

  /// Takes in the next decision.
  [[nodiscard]] Status receive(BytesView decision);

  /// The next message for the leader.
  [[nodiscard]] std::optional<Bytes> take_announcement();
  /// The next operation to start on its lane.
  [[nodiscard]] std::optional<NamedStart> take_start();
  [[nodiscard]] std::optional<NamedFailure> take_failure();
  /// The earliest time at which check_patience() has something to do; never() mostly.
  [[nodiscard]] Time next_check() const;
  void check_patience(Time now);

  [[nodiscard]] bool has_pending() const { return !pending_.empty(); }
  /// Says for what a pending submission waits: "not submitted by rank 2", "its static plan waits for
  /// "grad.6", not submitted here". Empty as long as nobody has said.
  [[nodiscard]] std::string describe(const std::string& name) const;
  /// The ranks that had not submitted it when the leader was asked.
  [[nodiscard]] std::vector<int32_t> missing(const std::string& name) const;
  /// True while this member follows a plan.
  [[nodiscard]] bool planned() const { return mode_ % 2 == 1; }

 private:
  struct Pending {
    NamedEntry entry;
    uint64_t token = 0;
    uint64_t sequence = 0;  ///< Place in the order of submission.
    Time since;
    bool announced = false;
    bool planned = false;  ///< Counted in plan_.
    bool withdrawn = false;
    bool doubted = false;  ///< The leader has been told so, and has not answered.
    std::optional<std::vector<int32_t>> missing;  ///< As the leader has said,
    uint32_t missing_more = 0;                    ///< and so many more.
  };
  /// A submission whose name is still pending: what had it was given up as something else, or was
  /// taken back from a plan. It is taken in once that is pending no longer.
  struct After {
    NamedEntry entry;
    uint64_t token = 0;
    Time since;
  };
  struct Ordered {
    uint32_t number;
    uint64_t sequence;
  };
  struct PlannedStart {
    uint64_t op;
    std::vector<Pending> parts;
  };

  Status take_in(BytesView decision);
  Status receive_run(const Decision& decision);
  Status receive_fail(const Decision& decision);
  Status receive_propose(const Decision& decision);
  Status receive_engage(const Decision& decision);
  Status receive_cut(const Decision& decision);
  Status receive_withdrawn(const Decision& decision);
  Status receive_joined(const Decision& decision);
  Status receive_over(const Decision& decision);

  Status accept(NamedEntry entry, uint64_t token, Time now);
  Status accept_next();
  void take_back(uint64_t from, uint64_t resume);
  void announce_again(Pending pending);
  [[nodiscard]] Status check_announced(const NamedEntry& entry, const Decision& decision) const;
  Status start_bucket(const Bucket& bucket, const std::vector<NamedEntry>& entries, int32_t absent);
  [[nodiscard]] bool may_say_join() const;
  void say_join();
  std::optional<Pending> take_pending(const std::string& name);
  [[nodiscard]] std::vector<std::string> names_in_order() const;  ///< Of submission.
  [[nodiscard]] std::optional<std::vector<uint32_t>> local_order(const Decision& decision) const;
  void place(Pending& pending);
  void follow(Pending& pending);
  void leave();
  void say(Announcement::Kind kind, const Pending& pending);
  void start_planned();
  void fail(std::vector<uint64_t> tokens, Status status);

  NamedQueueOptions options_;
  NamedCache cache_;
  std::unordered_map<std::string, Pending> pending_;
  /// By name, each of which is in pending_; none is empty.
  std::unordered_map<std::string, std::deque<After>> after_;
  std::map<uint64_t, Pending*> by_sequence_;  ///< Of pending_, in order of submission.
  std::deque<std::string> to_announce_;
  std::deque<Bytes> outbox_;
  std::deque<NamedStart> starts_;
  std::deque<NamedFailure> failures_;
  MemberJoin join_;
  std::optional<int32_t> missed_join_;
  std::deque<Ordered> history_;  ///< The last runs, for local_order().
  std::unique_ptr<FollowedPlan> proposed_;
  std::unique_ptr<FollowedPlan> plan_;       ///< Followed or frozen.
  std::deque<PlannedStart> planned_starts_;  ///< Not retired, in order.
  uint64_t next_op_ = 0;                     ///< Of the ordered lane.
  uint64_t next_sequence_ = 0;
  uint32_t mode_ = 0;
};

}  // namespace corro::named
