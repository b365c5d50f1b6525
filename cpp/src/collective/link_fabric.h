// LinkFabric: a lane whose operations are schedules over endpoints. Which schedule, the selection
// table says that all members have agreed on.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "collective/fabric.h"
#include "collective/runner.h"
#include "collective/schedule/selection.h"

namespace corro::collective {

class LinkFabric final : public Fabric {
 public:
  /// The endpoints and the table outlive it; the table changes only while nothing has run.
  LinkFabric(Links links, const SelectionTable& selection)
      : links_(std::move(links)), selection_(selection) {}

  [[nodiscard]] FabricTraits traits() const override { return {.by_messages = true}; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::unique_ptr<Operation> start(uint64_t op, const OpRequest& request,
                                                 bool published) override;
  bool begin_now(uint64_t /*op*/, const OpRequest& /*request*/,
                 std::optional<BoardExchange>& /*exchange*/) override {
    return false;
  }
  void set_completed(uint64_t op) override;
  void set_failed(Code /*code*/, int32_t /*culprit*/) override {}
  [[nodiscard]] std::string last_operation_of(int32_t r) const override;
  [[nodiscard]] bool leave(const std::function<bool(int32_t world_rank)>& /*gone*/) override {
    return true;
  }

 private:
  [[nodiscard]] std::shared_ptr<const Schedule> schedule_for(const OpRequest& request);

  Links links_;
  const SelectionTable& selection_;
  /// Schedules of even operations, by (signature, in place); bounded.
  std::map<std::pair<uint64_t, bool>, std::shared_ptr<const Schedule>> schedules_;
};

}  // namespace corro::collective
