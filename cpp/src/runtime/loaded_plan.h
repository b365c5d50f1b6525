// LoadedPlan: a plan of all ranks of a group, and what this rank runs of it.
//
//   CORRO_ASSIGN(LoadedPlan * plan, engine.load(group, whole, {}));
//   const auto work = plan->run_until(8);         // micro-batches 0 to 7
//   while (!work->done()) engine.poll(now);
//
// What this rank holds of it is a PlanPart (plan_part.h): an executor of its own, and its lanes.
// Nothing is agreed before a run: the run number is how many plans this group has loaded before,
// and the keys of the plan and of its lanes follow from it, so what an earlier run left on the way
// fits nowhere.
//
//   runs -- a firing fails or is late, a member is lost, or has left and is waited for, STOP is
//           heard, stop() --> stopped
//
// Who finds the reason says STOP to all members. A rank may see the end before it hears why: a
// board that was given up, a member that has left. It waits for the reason for a second, unless the
// epoch ends: then members leave at the end of a step, and there is no other reason. On each rank
// what is in flight is cancelled, and all waits end with the reason: which service, which
// micro-batch, which rank. A stopped plan stays stopped; survivors load another one, under keys of
// its own, from completed() on.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan_part.h"

namespace corro::runtime {

/// Loop-confined, but for lanes that say otherwise.
class LoadedPlan {
 public:
  /// Borrows the facts, which are of the part's group.
  LoadedPlan(PlanPart part, const GroupFacts& facts, EngineParts& parts)
      : part_(std::move(part)), facts_(facts), parts_(parts) {}

  [[nodiscard]] PlanPart& part() { return part_; }

  /// Lets every service fire for micro-batches below `micro`. The work is done when all of them are
  /// complete on this rank, or the plan has stopped.
  [[nodiscard]] std::shared_ptr<WorkState> run_until(uint32_t micro);
  /// Stops it on all ranks.
  void stop(const Status& cause, Time now);
  /// The least micro-batch that a service has not completed on this rank.
  [[nodiscard]] uint32_t completed() const { return part_.executor().completed(); }
  /// Nothing is in flight, and nobody waits for micro-batches.
  [[nodiscard]] bool idle() const { return part_.executor().idle() && waiters_.empty(); }
  /// Thread-safe: status() is not OK.
  [[nodiscard]] bool has_stopped() const { return has_stopped_.load(std::memory_order_acquire); }
  /// OK, or why it has stopped.
  [[nodiscard]] const Status& status() const { return stopped_; }
  /// What each service waits for, as text for people.
  [[nodiscard]] std::string describe_waiting() const { return part_.executor().describe_waiting(); }

  bool poll(Time now);
  /// Thread-safe: somebody outside of the engine has given it something to do.
  [[nodiscard]] bool has_news() const;
  void hear(MemberId from, const wire::Control& control, Time now);
  void judge(MemberId from, const transport::MessageKey& key, const SignatureBits& signature);
  /// The group has failed, or goes: ends everything without a word.
  void fail(const Status& cause, Time now);
  /// Looks at deadlines of what is in flight among ranks.
  void check(Time now);
  /// Looks at the deadline of firings that wait for threads: whoever waits for this rank's part of
  /// the plan calls it now and then. It stops the plan if nothing has moved for the timeout, one
  /// waits, and no thread computes any: a thread that computes may take as long as it likes.
  void check_served(Time now);
  [[nodiscard]] Time next_deadline() const;
  /// Stops it on all ranks if something in flight waits for a member that has left. Not at once:
  /// its STOP, or the one that it had heard, may still be on its way.
  void check_departed(Time now);

 private:
  struct Waiter {
    uint32_t until;
    std::shared_ptr<WorkState> work;
  };
  void settle(Time now);
  [[nodiscard]] bool may_hear_why(Time now);
  void end(const GroupFailure& failure, bool tell, Time now);
  void tell_why(const GroupFailure& failure);

  PlanPart part_;
  const GroupFacts& facts_;
  EngineParts& parts_;
  std::vector<Waiter> waiters_;
  Time moved_;  ///< When something has moved last, or a thread has computed.
  std::optional<std::pair<PlanLane*, GroupFailure>> heard_;  ///< A member has given a lane up.
  Time why_until_ = Time::never();  ///< So long STOP may say why; never: there is no sign of one.
  bool fresh_ = false;              ///< run_until() has allowed something since the last poll.
  Status stopped_;
  std::atomic<bool> has_stopped_{false};
};

}  // namespace corro::runtime
