#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "plan/plan_file.h"

namespace corro::plan {
namespace {

using graph::ChannelSpec;
using graph::LaneSpec;
using graph::OperationSpec;
using graph::Plan;
using graph::ServiceSpec;
using Written = nlohmann::ordered_json;

template <typename Spec>
Status check_names(const std::vector<Spec>& list, std::string_view field) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < list.size(); ++i) {
    if (is_name(list[i].name) && names.insert(list[i].name).second) continue;
    return {Code::kInvalidArgument,
            fmt::format("plan: {}[{}].name: is no name, or another's", field, i)};
  }
  return {};
}

template <typename T>
void put(Written& object, const char* field, const T& value, const T& by_default) {
  if (value != by_default) object[field] = value;
}

Written lane_to_json(const LaneSpec& lane) {
  const LaneSpec usual;
  Written object{{"name", lane.name}};
  put(object, "order", name_of(lane.order), name_of(usual.order));
  put(object, "depth", lane.depth, usual.depth);
  object["ranks"] = lane.ranks;
  return object;
}

Written channel_to_json(const ChannelSpec& channel) {
  const ChannelSpec usual;
  Written object{{"name", channel.name}};
  put(object, "slots", channel.slots, usual.slots);
  put(object, "initial", channel.initial, usual.initial);
  put(object, "slot_bytes", channel.slot_bytes, usual.slot_bytes);
  put(object, "transfer_ns", channel.transfer.count(), usual.transfer.count());
  return object;
}

Written operation_to_json(const OperationSpec& operation) {
  Written object{{"kind", name_of(operation.kind)}};
  if (operation.kind != OpKind::kBarrier) {
    object["dtype"] = name_of(operation.dtype);
    object["count"] = operation.count;
  }
  if (reduces(operation.kind)) object["reduce_op"] = name_of(operation.reduce_op);
  if (has_root(operation.kind)) object["root"] = operation.root;
  return object;
}

Written service_to_json(const Plan& plan, const ServiceSpec& service) {
  const ServiceSpec usual;
  const auto names_of = [&plan](const std::vector<graph::ChannelId>& channels) {
    std::vector<std::string> names;
    for (const graph::ChannelId channel : channels) names.push_back(plan.channels[channel].name);
    return names;
  };
  Written object{{"name", service.name}, {"lane", plan.lanes[service.lane].name}};
  put(object, "priority", service.priority, usual.priority);
  put(object, "lag", service.lag, usual.lag);
  put(object, "duration_ns", service.duration.count(), usual.duration.count());
  put(object, "inputs", names_of(service.inputs), {});
  put(object, "outputs", names_of(service.outputs), {});
  if (service.operation) object["operation"] = operation_to_json(*service.operation);
  return object;
}

}  // namespace

Result<Written> to_json(const Plan& plan) {
  CORRO_TRY(graph::check_form(plan).with_context("plan"));
  CORRO_TRY(check_names(plan.lanes, "lanes"));
  CORRO_TRY(check_names(plan.channels, "channels"));
  CORRO_TRY(check_names(plan.services, "services"));
  Written lanes = Written::array();
  Written channels = Written::array();
  Written services = Written::array();
  for (const LaneSpec& lane : plan.lanes) lanes.push_back(lane_to_json(lane));
  for (const ChannelSpec& channel : plan.channels) channels.push_back(channel_to_json(channel));
  for (const ServiceSpec& s : plan.services) services.push_back(service_to_json(plan, s));
  return Written{{"corro_plan", kPlanVersion},
                 {"ranks", plan.ranks},
                 {"lanes", std::move(lanes)},
                 {"channels", std::move(channels)},
                 {"services", std::move(services)}};
}

Result<std::string> write_plan(const Plan& plan) {
  CORRO_ASSIGN(const Written document, to_json(plan));
  std::string text = "{";
  const char* comma = "\n";
  for (const auto& [field, value] : document.items()) {
    text += fmt::format("{}  \"{}\": ", std::exchange(comma, ",\n"), field);
    if (!value.is_array()) {
      text += value.dump();
      continue;
    }
    const char* start = "[\n";
    for (const Written& item : value) {
      text += std::exchange(start, ",\n") + ("    " + item.dump());
    }
    text += value.empty() ? "[]" : "\n  ]";
  }
  return text + "\n}\n";
}

}  // namespace corro::plan
