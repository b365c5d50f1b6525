// NamedQueue: a member's side of named operations. A state machine without I/O or clock; nothing is
// sent unless something has been submitted.
//
//   CORRO_TRY(queue.submit({"grad.7", op}, token, now));
//   while (auto bytes = queue.take_announcement()) send_to_leader(*bytes);
//   CORRO_TRY(queue.receive(decision));
//   while (auto start = queue.take_start()) begin(start->lane, start->op, start->parts);
//   while (auto failure = queue.take_failure()) end(failure->tokens, failure->status);
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "named/fusion.h"
#include "named/named_messages.h"
#include "named/named_plan.h"

namespace corro::named {

/// Which of a group's two communicators an operation runs on; each has its own op ids and starts in
/// their order.
enum class NamedLane : uint8_t { kOrdered, kPlanned };

/// An operation to start now. The same op id is the same operation on every member.
struct NamedStart {
  struct Part {
    uint64_t token = 0;
    uint64_t offset_bytes = 0;
  };
  NamedLane lane = NamedLane::kOrdered;
  uint64_t op = 0;
  Fusible as_one;
  std::vector<Part>
      parts;  ///< One: run it in place. Several: at these offsets of a zero-filled buffer.
};

/// Submissions that end without having run.
struct NamedFailure {
  std::vector<uint64_t> tokens;
  Status status;
  /// Set if members may already be inside the operation: it has to be cancelled there, and its op
  /// id counts as used.
  struct Cancel {
    NamedLane lane = NamedLane::kOrdered;
    uint64_t op = 0;
  };
  std::optional<Cancel> cancel;
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
  /// A submission's deadline comes near: asks the leader who has not submitted it, for describe().
  void ask(const std::string& name);
  /// A caller blocks until this submission has run: if its plan holds it back, the plan is left at
  /// once.
  void hurry(const std::string& name);
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
  /// What a pending submission waits for: "not submitted by rank 2", "its static plan waits for
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
    std::optional<std::vector<int32_t>> missing;  ///< As the leader has said.
  };
  /// A submission under a name that was given up as something else, and is still announced: it
  /// comes once the leader has said what became of that.
  struct After {
    NamedEntry entry;
    uint64_t token = 0;
    Time since;
  };
  struct Ordered {
    uint32_t number;
    uint64_t sequence;
  };

  Status take_in(BytesView decision);
  Status receive_run(const Decision& decision);
  Status receive_fail(const Decision& decision);
  Status receive_propose(const Decision& decision);
  Status receive_engage(const Decision& decision);
  Status receive_cut(const Decision& decision);
  Status receive_withdrawn(const Decision& decision);

  Status start_bucket(const Bucket& bucket, const std::vector<NamedEntry>& entries);
  Pending take_pending(const std::string& name);
  [[nodiscard]] std::optional<std::vector<uint32_t>> local_order(const Decision& decision) const;
  void place(Pending& pending);
  void follow(Pending& pending);
  void settle(Pending& pending);
  void leave();
  void say(Announcement::Kind kind, const Pending& pending);
  void start_planned();
  void fail_planned(uint32_t index, const Pending& culprit);
  void fail(std::vector<uint64_t> tokens, Status status);

  NamedQueueOptions options_;
  NamedCache cache_;
  std::unordered_map<std::string, Pending> pending_;
  std::unordered_map<std::string, After>
      after_;                                    ///< By name; each has a withdrawn one in pending_.
  std::map<uint64_t, std::string> by_sequence_;  ///< Names in order of submission.
  std::unordered_map<std::string, Status>
      owed_;  ///< Failures of instances that have not been submitted here yet.
  std::deque<std::string> to_announce_;
  std::deque<Bytes> outbox_;
  std::deque<NamedStart> starts_;
  std::deque<NamedFailure> failures_;
  std::deque<Ordered> history_;  ///< The last runs, for local_order().
  std::unique_ptr<FollowedPlan> proposed_;
  std::unique_ptr<FollowedPlan> plan_;  ///< Followed, frozen, or with operations left to run.
  uint64_t next_op_ = 0;                ///< Of the ordered lane.
  uint64_t next_sequence_ = 0;
  uint32_t mode_ = 0;
};

}  // namespace corro::named
