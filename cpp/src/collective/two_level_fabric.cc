#include "collective/two_level_fabric.h"

namespace corro::collective {

std::unique_ptr<Operation> TwoLevelFabric::start_plain(uint64_t op, const OpRequest& request,
                                                       bool /*published*/) {
  return make_two_level_operation(lane_, op, request, schedules_.schedule_for(request));
}

void TwoLevelFabric::set_completed(uint64_t op) {
  retire_below(links_, op);
  board_->set_completed(op);
}

std::string TwoLevelFabric::last_operation_of(int32_t r) const {
  const Topology& topology = schedules_.topology();
  const bool here = topology.host_of(r) == topology.host_of(links_.rank);
  return here ? board_->last_operation_of(topology.place_of(r)) : describe_last_message(links_, r);
}

bool TwoLevelFabric::leave(const std::function<bool(int32_t world_rank)>& gone) {
  board_->leave();
  return board_->forsaken(gone);
}

}  // namespace corro::collective
