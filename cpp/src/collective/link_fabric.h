// LinkFabric: a lane whose operations are schedules over endpoints. Which schedule, the selection
// table says that all members have agreed on.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "collective/fabric.h"
#include "collective/runner.h"
#include "collective/schedule_cache.h"

namespace corro::collective {

class LinkFabric final : public Fabric {
 public:
  /// A topology of one level: there is no memory for the stages of another one. The endpoints and
  /// the table outlive it; the table changes only while nothing has run.
  LinkFabric(Links links, Topology topology, const SelectionTable& selection, SegmentPool& scratch)
      : Fabric(links.size(), scratch),
        links_(std::move(links)),
        schedules_(links_.rank, std::move(topology), selection) {
    CORRO_CHECK(!schedules_.topology().two_levels());
  }

  [[nodiscard]] FabricTraits traits() const override { return {.by_messages = true}; }
  [[nodiscard]] std::string describe() const override { return schedules_.describe(); }
  bool begin_now(uint64_t /*op*/, const OpRequest& /*request*/,
                 std::optional<BoardExchange>& /*exchange*/) override {
    return false;
  }
  void set_completed(uint64_t op) override { retire_below(links_, op); }
  bool set_failed(Code /*code*/, int32_t /*culprit*/) override { return true; }
  [[nodiscard]] std::string last_operation_of(int32_t r) const override {
    return describe_last_message(links_, r);
  }
  [[nodiscard]] bool leave(const std::function<bool(int32_t world_rank)>& /*gone*/) override {
    return true;
  }

 private:
  [[nodiscard]] std::unique_ptr<Operation> start_plain(uint64_t op, const OpRequest& request,
                                                       bool published) override;

  Links links_;
  ScheduleCache schedules_;
};

}  // namespace corro::collective
