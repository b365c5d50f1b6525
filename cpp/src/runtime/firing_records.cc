#include "runtime/firing_records.h"

#include <fmt/format.h>

namespace corro::runtime {

FiringRecords::FiringRecords(const graph::Plan& part, EngineParts& parts) : parts_(parts) {
  for (const graph::ServiceSpec& spec : part.services) {
    const std::string& lane = part.lanes[spec.lane].name;
    services_.push_back(
        {.name = spec.name, .lane = lane.empty() ? fmt::format("lane {}", spec.lane) : lane});
  }
  for (Service& service : services_)
    service.what = {.kind = std::nullopt, .name = service.name, .plan_lane = service.lane};
}

FiringRecords::~FiringRecords() {
  const Status cancelled(Code::kCancelled, "the plan is gone");
  for (graph::ServiceId id = 0; id < services_.size(); ++id) {
    if (services_[id].in_flight) on_end(id, cancelled);
  }
}

void FiringRecords::set_operation(graph::ServiceId service, const LaneKey& key,
                                  const collective::OpRequest& request, obs::Phase phase) {
  Service& one = services_[service];
  one.what = runtime::record_of(key, request, 0);
  one.what.name = one.name;
  one.what.plan_lane = one.lane;
  one.phase = phase;
}

void FiringRecords::on_start(graph::ServiceId service, graph::Generation generation) {
  Service& one = services_[service];
  one.what.op_id = generation.micro;
  one.in_flight = true;
  // Not the time of the executor's poll: the firing before may have ended after that.
  one.since = monotonic_now();
  one.until = {};
  one.record = parts_.recorder->begin(one.what, one.phase, one.since);
}

void FiringRecords::computed(graph::ServiceId service, Time since, Time until) {
  services_[service].since = since;
  services_[service].until = until;
}

void FiringRecords::on_end(graph::ServiceId service, const Status& status) {
  Service& one = services_[service];
  one.in_flight = false;
  const Time until = one.until == Time{} ? monotonic_now() : one.until;
  parts_.recorder->end(one.record, status.code(), until);
  parts_.timeline.fired(one.what, one.since, until, status.code());
}

}  // namespace corro::runtime
