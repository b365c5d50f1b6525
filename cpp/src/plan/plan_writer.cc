#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "plan/plan_file.h"

namespace corro::plan {
namespace {

using graph::ChannelSpec;
using graph::CopySpec;
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

Status check_path(const ServiceSpec& service, size_t index) {
  if (!service.copy || service.copy->path.empty()) return {};
  if (is_name(service.copy->path, graph::kMostPathBytes)) return {};
  return {Code::kInvalidArgument,
          fmt::format("plan: services[{}].copy.path: cannot be written", index)};
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

Written copy_to_json(const CopySpec& copy) {
  const CopySpec usual;
  Written object{{"kind", name_of(copy.kind)}};
  put(object, "path", copy.path, usual.path);
  put(object, "offset", copy.offset, usual.offset);
  put(object, "stride", copy.stride, usual.stride);
  put(object, "count", copy.count, usual.count);
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
  put(object, "every", service.every, usual.every);
  put(object, "duration_ns", service.duration.count(), usual.duration.count());
  put(object, "inputs", names_of(service.inputs), {});
  put(object, "outputs", names_of(service.outputs), {});
  if (service.operation) object["operation"] = operation_to_json(*service.operation);
  if (service.copy) object["copy"] = copy_to_json(*service.copy);
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
  for (size_t i = 0; i < plan.services.size(); ++i) {
    CORRO_TRY(check_path(plan.services[i], i));
    services.push_back(service_to_json(plan, plan.services[i]));
  }
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
