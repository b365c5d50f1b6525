// ScheduleCache: the schedules of one lane on one rank. The selection table that all ranks have
// agreed on says which algorithm, a pure function makes the schedule, and it is kept.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "collective/operation/request.h"
#include "collective/schedule/selection.h"

namespace corro::collective {

/// Loop-confined. The table outlives it and changes only while nothing has run.
class ScheduleCache {
 public:
  ScheduleCache(int32_t rank, Topology topology, const SelectionTable& selection)
      : rank_(rank), topology_(std::move(topology)), selection_(selection) {}

  [[nodiscard]] const Topology& topology() const { return topology_; }
  [[nodiscard]] std::string describe() const { return collective::describe(selection_, topology_); }
  /// For a request that validate() accepts.
  [[nodiscard]] std::shared_ptr<const Schedule> schedule_for(const OpRequest& request);

 private:
  const int32_t rank_;
  const Topology topology_;
  const SelectionTable& selection_;
  /// Of even operations, by (signature, in place); bounded.
  std::map<std::pair<uint64_t, bool>, std::shared_ptr<const Schedule>> schedules_;
};

}  // namespace corro::collective
