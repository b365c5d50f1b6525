#include "collective/link_fabric.h"

#include <fmt/format.h>

namespace corro::collective {

std::unique_ptr<Operation> LinkFabric::start_plain(uint64_t op, const OpRequest& request,
                                                   bool /*published*/) {
  return make_schedule_operation(links_, op, request, schedules_.schedule_for(request));
}

}  // namespace corro::collective
