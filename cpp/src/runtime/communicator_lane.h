// CommunicatorLane: the collectives of a loaded plan on one of its lanes.
//
// A firing is an operation of a GroupLane over the lane's ranks: its op id is the count of firings,
// which the lane's agreed order makes equal on all ranks. It reads the slot of its input and fills
// the slot of its output; with one of them only, it works in place.
#pragma once

#include <memory>
#include <vector>

#include "graph/cut.h"
#include "runtime/firing_records.h"
#include "runtime/group_lane.h"
#include "runtime/plan_lane.h"

namespace corro::runtime {

/// Makes a lane's fabric; fails where memory is short. The facts outlive the fabric.
using MakeFabric = std::function<Result<std::unique_ptr<collective::Fabric>>(
    const GroupFacts& facts, const LaneKey& key)>;

class CommunicatorLane final : public PlanLane {
 public:
  /// `records`: of the plan's firings; null: they are recorded as operations.
  CommunicatorLane(const LaneKey& key, GroupFacts facts, EngineParts& parts,
                   std::unique_ptr<collective::Fabric> fabric, FiringRecords* records)
      : facts_(std::move(facts)),
        records_(records),
        lane_(std::make_unique<GroupLane>(key, facts_, parts, std::move(fabric), nullptr)) {}

  [[nodiscard]] const GroupFacts& facts() const { return facts_; }
  /// The service of the part that has this number asks for this. Each firing names its buffers.
  void add(graph::ServiceId service, collective::OpRequest request);

  void serve(graph::Executor& executor) override { lane_->serve(executor); }
  void start(Time now, const graph::Work& work) override;
  bool poll(Time now) override;
  void stop(const Status& cause, Time now) override;
  [[nodiscard]] std::optional<LaneKey> key() const override { return lane_->key(); }
  void hear(MemberId from, const wire::Control& control) override;
  void judge(MemberId from, uint64_t op, const SignatureBits& signature) override;
  [[nodiscard]] MemberId awaited_that_left() const override {
    const int32_t r = lane_->awaited_that_left();
    return r < 0 ? -1 : facts_.member(r);
  }
  [[nodiscard]] std::optional<GroupFailure> check(Time now) override;
  [[nodiscard]] Time next_deadline() const override { return lane_->next_deadline(); }
  [[nodiscard]] std::optional<Rest> take_rest() override;

 private:
  GroupFacts facts_;
  FiringRecords* const records_;
  std::unique_ptr<GroupLane> lane_;
  bool failed_ = false;                          ///< It has told why; stop() comes next.
  std::vector<collective::OpRequest> requests_;  ///< By service of the part, if of this lane.
};

/// Makes the request of a service for one rank, from its part. INVALID_ARGUMENT with the service's
/// name if it has too many slots to use, or they are not large enough.
[[nodiscard]] Result<collective::OpRequest> make_request(const graph::Plan& plan,
                                                         const graph::Part& part,
                                                         graph::ServiceId service,
                                                         const GroupFacts& facts);

}  // namespace corro::runtime
