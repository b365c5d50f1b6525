// ServedFabric: a lane of links whose large allreduces have aggregators (served_operation.h).
// Everything else is the plain fabric's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "collective/fabric.h"
#include "collective/schedule/selection.h"
#include "collective/served_operation.h"

namespace corro::collective {

struct ServedFabricOptions {
  Links members;     ///< Those of the plain fabric.
  LaneKey data;      ///< Of what aggregators take part in.
  Topology hosts;    ///< Of the members.
  Duration timeout;  ///< Of operations that name none.
};

/// The table, the links and the pool outlive it, as those of LinkFabric do.
class ServedFabric final : public Fabric {
 public:
  ServedFabric(std::unique_ptr<Fabric> plain, ServedFabricOptions options,
               const SelectionTable& selection, ServedLinks& aggregators, SegmentPool& scratch);

  [[nodiscard]] FabricTraits traits() const override { return plain_->traits(); }
  [[nodiscard]] std::string describe() const override;
  bool begin_now(uint64_t op, const OpRequest& request,
                 std::optional<BoardExchange>& exchange) override {
    return plain_->begin_now(op, request, exchange);
  }
  void set_completed(uint64_t op) override;
  bool set_failed(Code code, int32_t culprit) override { return plain_->set_failed(code, culprit); }
  [[nodiscard]] std::string last_operation_of(int32_t r) const override {
    return plain_->last_operation_of(r);
  }
  [[nodiscard]] bool leave(const std::function<bool(int32_t world_rank)>& gone) override {
    return plain_->leave(gone);
  }

 private:
  struct Choice {
    std::shared_ptr<const Schedule> schedule;  ///< Null: contributors do it alone.
    Algorithm folds_as = Algorithm::kTwoShot;
  };
  [[nodiscard]] std::unique_ptr<Operation> start_plain(uint64_t op, const OpRequest& request,
                                                       bool published) override;
  [[nodiscard]] const Choice& choice_for(const OpRequest& request);

  const std::unique_ptr<Fabric> plain_;
  const SelectionTable& selection_;
  ServedLane lane_;
  const Topology hosts_, with_aggregators_;
  std::map<uint64_t, Choice> choices_;  ///< By signature; bounded.
};

}  // namespace corro::collective
