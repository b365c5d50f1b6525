// LoadedPlan: a plan of all ranks of a group, and what this rank runs of it.
//
//   CORRO_ASSIGN(LoadedPlan * plan, engine.load(group, whole, {}));
//   const auto work = plan->run_until(8);         // micro-batches 0 to 7
//   while (!work->done()) engine.poll(now);
//
// It is an executor of its own over cut(plan, rank), whose lanes are PlanLanes. Nothing is agreed
// before a run: the run number is how many plans this group has loaded before, and the keys of the
// plan and of its lanes follow from it, so what an earlier run left on the way fits nowhere.
//
//   runs -- a firing fails or is late, a member is lost, STOP is heard, stop() --> stopped
//
// Who finds the reason says STOP to all members. A rank may see the end before it hears why: a
// board that was given up, a member that has left. It waits for the reason for a second. On each
// rank what is in flight is cancelled, and all waits end with the reason: which service, which
// micro-batch, which rank. A stopped plan stays stopped; survivors load another one, under keys of
// its own, from completed() on.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/communicator_lane.h"
#include "runtime/pulled_lane.h"

namespace corro::runtime {

/// How a plan is loaded; the same on all ranks, but for what its own lanes and memory are.
struct LoadOptions {
  uint32_t first = 0;  ///< The micro-batch that every service fires first.
  /// Of a firing that waits for other ranks, or for a thread of the user; zero: the engine's.
  Duration timeout = {};
  /// A lane of this rank alone (number in the whole plan) that the loader serves itself; null, or
  /// no function: a PulledLane. It outlives the plan.
  std::function<PlanLane*(graph::LaneId lane)> own_lane = {};
  /// Memory of a slot (channel in the whole plan), which stays until the plan is unloaded. No
  /// function: zeroed memory of the arena.
  std::function<Result<std::span<std::byte>>(graph::ChannelId channel, uint32_t slot)> memory = {};
  /// Adds to a service's request what a plan does not say: scales, a shape.
  std::function<void(graph::ServiceId service, collective::OpRequest& request)> adjust = {};
};

/// Loop-confined, but for lanes that say otherwise.
class LoadedPlan {
 public:
  /// Does not communicate. INVALID_ARGUMENT for a plan that is not well formed, not of as many
  /// ranks as the group, or whose collectives do not fit their slots; else as graph::check().
  [[nodiscard]] static Result<std::unique_ptr<LoadedPlan>> load(
      const graph::Plan& plan, const LaneKey& key, const GroupFacts& facts, EngineParts& parts,
      const MakeFabric& make_fabric, const LoadOptions& options);
  LoadedPlan(const LoadedPlan&) = delete;
  LoadedPlan& operator=(const LoadedPlan&) = delete;
  ~LoadedPlan() = default;

  [[nodiscard]] const graph::Plan& whole() const { return whole_; }
  /// The keys that members speak of it by: its own, and its lanes'.
  [[nodiscard]] std::vector<LaneKey> keys() const;
  /// Null if this lane of the whole plan is no pulled one of this rank. Valid until the unloading.
  [[nodiscard]] PulledLane* pulled_lane(graph::LaneId lane) const;
  /// The slots of a channel (number in the whole plan) on this rank, to fill what is readable at
  /// the start; empty if it does not lie here. Valid until the unloading.
  [[nodiscard]] std::vector<graph::Slot*> slots(graph::ChannelId channel);
  /// All slots that are not the loader's, in the arena, which it keeps; null without any. Shared
  /// with those who look at slots and may do so after the unloading.
  [[nodiscard]] const std::shared_ptr<std::byte>& memory() const { return memory_; }

  /// Lets every service fire for micro-batches below `micro`. The work is done when all of them are
  /// complete on this rank, or the plan has stopped.
  [[nodiscard]] std::shared_ptr<WorkState> run_until(uint32_t micro);
  /// Stops it on all ranks.
  void stop(const Status& cause, Time now);
  /// The least micro-batch that a service has not completed on this rank.
  [[nodiscard]] uint32_t completed() const { return executor_->completed(); }
  /// The least micro-batch that this service (number in the whole plan) has not completed on this
  /// rank; nothing if it is not here.
  [[nodiscard]] std::optional<uint32_t> completed_by(graph::ServiceId service) const;
  /// Nothing is in flight, and nobody waits for micro-batches.
  [[nodiscard]] bool idle() const { return executor_->idle() && waiters_.empty(); }
  /// Thread-safe: status() is not OK.
  [[nodiscard]] bool has_stopped() const { return has_stopped_.load(std::memory_order_acquire); }
  /// OK, or why it has stopped.
  [[nodiscard]] const Status& status() const { return stopped_; }
  /// What each service waits for, as text for people.
  [[nodiscard]] std::string describe_waiting() const { return executor_->describe_waiting(); }

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
  /// The first member that has left and that something in flight waits for, or -1. Not at once: its
  /// STOP, or the one that it had heard, may still be on its way.
  [[nodiscard]] MemberId awaited_that_left(Time now);
  /// It is over here: what others may still read of it. Nothing may be called afterwards.
  [[nodiscard]] std::vector<PlanLane::Rest> take_rests();

 private:
  struct Waiter {
    uint32_t until;
    std::shared_ptr<WorkState> work;
  };
  LoadedPlan(graph::Plan plan, const LaneKey& key, const GroupFacts& facts, EngineParts& parts);
  [[nodiscard]] Status build(const MakeFabric& make_fabric, const LoadOptions& options);
  [[nodiscard]] Status make_lanes(const MakeFabric& make_fabric, const LoadOptions& options);
  [[nodiscard]] Result<PlanLane*> make_communicator(graph::LaneId here,
                                                    const MakeFabric& make_fabric,
                                                    const LoadOptions& options);
  [[nodiscard]] PlanLane* make_transfer(graph::ServiceId half);
  void settle(Time now);
  void end(const Status& cause, int32_t culprit, bool tell, Time now);

  const graph::Plan whole_;
  const LaneKey key_;
  const GroupFacts& facts_;
  EngineParts& parts_;
  graph::Part part_;
  std::vector<std::unique_ptr<PlanLane>> made_;  ///< Those that are not the loader's.
  std::vector<PlanLane*> lanes_;                 ///< By lane of the part.
  std::vector<PulledLane*> pulled_;              ///< Those of them that threads of the user serve.
  std::unordered_map<LaneKey, PlanLane*, LaneKeyHash> by_key_;
  std::shared_ptr<std::byte> memory_;  ///< See memory().
  std::unique_ptr<graph::Executor> executor_;
  std::vector<Waiter> waiters_;
  Duration timeout_{};
  Time moved_;  ///< When something has moved last, or a thread has computed.
  std::optional<std::pair<PlanLane*, GroupFailure>> heard_;  ///< A member has given a lane up.
  Time why_until_ = Time::never();  ///< So long STOP may say why; never: there is no sign of one.
  bool fresh_ = false;              ///< run_until() has allowed something since the last poll.
  Status stopped_;
  std::atomic<bool> has_stopped_{false};
};

}  // namespace corro::runtime
