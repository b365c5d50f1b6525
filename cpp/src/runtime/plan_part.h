// PlanPart: what this rank holds of a plan that is loaded on a group: its part of the plan, the
// lanes that serve it, the memory of its slots, and the executor that fires its services.
//
//   CORRO_ASSIGN(PlanPart part, PlanPart::make(whole, key, facts, parts, make_fabric, {}));
//   part.executor().run_until(8);         // micro-batches 0 to 7
//
// Whoever asks names lanes, channels and services by their numbers in the whole plan; the executor
// and the lanes know those of the part, cut(plan, rank). When and how long it runs, and why it
// stops, is LoadedPlan's (loaded_plan.h).
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/communicator_lane.h"
#include "runtime/pulled_lane.h"

namespace corro::runtime {

/// The loader's memory for the slots of a channel that lies on this rank.
struct ChannelMemory {
  graph::ChannelId channel = 0;  ///< In the whole plan.
  std::vector<std::span<std::byte>> slots;
};

/// How a plan is loaded; the same on all ranks, but for what its own lanes and memory are.
struct LoadOptions {
  uint32_t first = 0;  ///< The micro-batch that begins; a multiple of step_of(plan).
  /// Of a firing that waits for other ranks, or for a thread of the user; zero: the engine's.
  Duration timeout = {};
  /// A lane of this rank alone (number in the whole plan) that the loader serves itself; null, or
  /// no function: a PulledLane. It outlives the plan.
  std::function<PlanLane*(graph::LaneId lane)> own_lane = {};
  /// Stays until the plan is unloaded. Slots of other channels are zeroed memory of the arena.
  std::vector<ChannelMemory> memory = {};
  /// Adds to a service's request what a plan does not say: scales, a shape.
  std::function<void(graph::ServiceId service, collective::OpRequest& request)> adjust = {};
  /// Firings are shown as such in the flight recorder and in the timeline. false: only collectives
  /// are, as operations.
  bool shows_firings = true;
};

/// Loop-confined, but for lanes that say otherwise.
class PlanPart {
 public:
  /// Does not communicate. INVALID_ARGUMENT for a plan that is not well formed, not of as many
  /// ranks as the group, that begins within a step, or whose collectives do not fit their slots, and for the loader's memory
  /// where it is not that of the slots here; else as graph::check().
  /// `key` names this run of the plan. Borrows `facts` and `parts`.
  [[nodiscard]] static Result<PlanPart> make(const graph::Plan& plan, const LaneKey& key,
                                             const GroupFacts& facts, EngineParts& parts,
                                             const MakeFabric& make_fabric,
                                             const LoadOptions& options);

  [[nodiscard]] const graph::Plan& whole() const { return whole_; }
  [[nodiscard]] const LaneKey& key() const { return key_; }
  /// The keys that members speak of it by: its own, and its lanes'.
  [[nodiscard]] std::vector<LaneKey> keys() const;
  /// Of a firing that waits for other ranks, or for a thread of the user.
  [[nodiscard]] Duration timeout() const { return timeout_; }
  [[nodiscard]] graph::Executor& executor() const { return *executor_; }
  /// All lanes, and those of them that threads of the user serve.
  [[nodiscard]] const std::vector<PlanLane*>& lanes() const { return lanes_; }
  [[nodiscard]] const std::vector<PulledLane*>& pulled_lanes() const { return pulled_; }
  /// The lane that members speak of by this key, or null.
  [[nodiscard]] PlanLane* find_lane(const LaneKey& key) const;
  /// Null if this lane is no pulled one of this rank. Valid until the unloading.
  [[nodiscard]] PulledLane* pulled_lane(graph::LaneId lane) const;
  /// The slots of a channel on this rank, to fill what is readable at the start; empty if it does
  /// not lie here. Valid until the unloading.
  [[nodiscard]] std::vector<graph::Slot*> slots(graph::ChannelId channel) const;
  /// All slots that are not the loader's, in the arena, which it keeps; null without any. Shared
  /// with those who look at slots and may do so after the unloading.
  [[nodiscard]] const std::shared_ptr<std::byte>& memory() const { return memory_; }
  /// The least micro-batch that this service has not completed on this rank; nothing if it is not
  /// here.
  [[nodiscard]] std::optional<uint32_t> completed_by(graph::ServiceId service) const;
  /// It is over here: what others may still read of it. Nothing may be called afterwards.
  [[nodiscard]] std::vector<PlanLane::Rest> take_rests();

 private:
  PlanPart(const graph::Plan& plan, const LaneKey& key, const GroupFacts& facts, EngineParts& parts,
           const LoadOptions& options);
  [[nodiscard]] Result<bool> serves_all(graph::LaneId lane, const char* what,
                                        bool (*is_such)(const graph::ServiceSpec&)) const;
  [[nodiscard]] Status make_lanes(const MakeFabric& make_fabric, const LoadOptions& options);
  [[nodiscard]] Result<PlanLane*> make_communicator(graph::LaneId here,
                                                    const MakeFabric& make_fabric,
                                                    const LoadOptions& options);
  [[nodiscard]] PlanLane* make_transfer(graph::ServiceId half);
  using Slots = std::vector<std::span<std::byte>>;
  [[nodiscard]] Status check_memory(const ChannelMemory& given) const;
  [[nodiscard]] Result<std::vector<Slots>> given_slots(
      const std::vector<ChannelMemory>& given) const;
  [[nodiscard]] Status allocate_others(std::vector<Slots>& slots);
  [[nodiscard]] Status make_executor(const LoadOptions& options);

  graph::Plan whole_;
  LaneKey key_;
  const GroupFacts& facts_;
  EngineParts& parts_;
  Duration timeout_;
  graph::Part part_;
  std::vector<PlanLane*> lanes_;  ///< By lane of the part.
  std::vector<PulledLane*> pulled_;
  std::unordered_map<LaneKey, PlanLane*, LaneKeyHash> by_key_;
  std::unique_ptr<FiringRecords> records_;  ///< Null: they are not shown.
  std::shared_ptr<std::byte> memory_;       ///< See memory().
  std::unique_ptr<graph::Executor> executor_;
  /// Those that are not the loader's; let go before the memory that their threads use.
  std::vector<std::unique_ptr<PlanLane>> made_;
};

}  // namespace corro::runtime
