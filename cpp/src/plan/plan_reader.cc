#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "plan/plan_file.h"

namespace corro::plan {
namespace {

using graph::ChannelSpec;
using graph::CopyKind;
using graph::CopySpec;
using graph::LaneOrder;
using graph::LaneSpec;
using graph::OperationSpec;
using graph::Plan;
using graph::ServiceSpec;

/// Numbers the names of one list, and finds them again.
class Names {
 public:
  explicit Names(std::string_view noun) : noun_(noun) {}

  std::string add(ObjectReader& object, const Place& place, Reading& reading) {
    std::string name = object.text("name");
    const Place at{&place, "name", {}};
    if (reading.ok() && !is_name(name)) {
      reading.fail(at, kNameRule);
    }
    const auto number = static_cast<uint32_t>(numbers_.size());
    if (reading.ok() && !numbers_.emplace(name, number).second) {
      reading.fail(at, fmt::format("\"{}\" is another {}'s name", name, noun_));
    }
    return name;
  }

  [[nodiscard]] uint32_t find(const std::string& name, const Place& place, Reading& reading) const {
    const auto found = numbers_.find(name);
    if (found != numbers_.end()) return found->second;
    if (is_name(name)) {
      reading.fail(place, fmt::format("there is no {} \"{}\"", noun_, name));
    } else {
      reading.fail(place, fmt::format("must be a {}'s name", noun_));
    }
    return 0;
  }

 private:
  std::string_view noun_;
  std::unordered_map<std::string, uint32_t> numbers_;
};

/// Reads the lists in the order in which they refer to each other.
class PlanReader {
 public:
  explicit PlanReader(std::string_view name) : name_(name), reading_(name) {}

  Result<Plan> read(const Json& value) {
    check_version(value, "corro_plan", kPlanVersion, reading_);
    ObjectReader top(value, {}, reading_, {"corro_plan", "ranks", "lanes", "channels", "services"});
    plan_.ranks = static_cast<uint32_t>(top.integer("ranks", {1, graph::kMostRanks}));
    top.list("lanes", [this](const Json& item, const Place& place) { read_lane(item, place); });
    top.list("channels",
             [this](const Json& item, const Place& place) { read_channel(item, place); });
    top.list("services",
             [this](const Json& item, const Place& place) { read_service(item, place); });
    CORRO_TRY(reading_.status());
    CORRO_TRY(graph::check_form(plan_).with_context(name_));
    return std::move(plan_);
  }

 private:
  void read_lane(const Json& item, const Place& place);
  void read_channel(const Json& item, const Place& place);
  void read_service(const Json& item, const Place& place);
  std::vector<uint32_t> read_channels(ObjectReader& service, std::string_view field);
  OperationSpec read_operation(const Json& item, const Place& place);
  CopySpec read_copy(const Json& item, const Place& place);

  std::string name_;
  Reading reading_;
  Names lanes_{"lane"};
  Names channels_{"channel"};
  Names services_{"service"};
  Plan plan_;
};

void PlanReader::read_lane(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_, {"name", "order", "depth", "ranks"});
  LaneSpec lane;
  lane.name = lanes_.add(object, place, reading_);
  lane.order = object.choice<LaneOrder>("order", 2, LaneOrder::kPriority);
  lane.depth = static_cast<uint32_t>(object.integer("depth", {1, graph::kMostDepth}, 1));
  lane.ranks.clear();
  object.list("ranks", [&](const Json& rank, const Place& at) {
    if (!rank.is_number_unsigned() || rank.get<uint64_t>() >= plan_.ranks) {
      return reading_.fail(at, fmt::format("must be an integer from 0 to {}", plan_.ranks - 1));
    }
    lane.ranks.push_back(rank.get<uint32_t>());
  });
  plan_.add_lane(std::move(lane));
}

void PlanReader::read_channel(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_,
                      {"name", "slots", "initial", "slot_bytes", "transfer_ns"});
  ChannelSpec channel;
  channel.name = channels_.add(object, place, reading_);
  channel.slots = static_cast<uint32_t>(object.integer("slots", {1, graph::kMostSlots}, 1));
  channel.initial = static_cast<uint32_t>(object.integer("initial", {0, graph::kMostSlots}, 0));
  channel.slot_bytes =
      static_cast<uint64_t>(object.integer("slot_bytes", {0, graph::kMostSlotBytes}, 0));
  channel.transfer = Duration(object.integer("transfer_ns", {0, graph::kMostDuration.count()}, 0));
  plan_.add_channel(std::move(channel));
}

void PlanReader::read_service(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_,
                      {"name", "lane", "priority", "lag", "every", "duration_ns", "inputs",
                       "outputs", "operation", "copy"});
  ServiceSpec service;
  service.name = services_.add(object, place, reading_);
  const std::string lane = object.text("lane");
  if (reading_.ok()) service.lane = lanes_.find(lane, {&place, "lane", {}}, reading_);
  using Limits = std::numeric_limits<int32_t>;
  service.priority =
      static_cast<int32_t>(object.integer("priority", {Limits::min(), Limits::max()}, 0));
  service.lag = static_cast<uint32_t>(object.integer("lag", {0, graph::kMostLag}, 0));
  service.every = static_cast<uint32_t>(object.integer("every", {1, graph::kMostEvery}, 1));
  service.duration = Duration(object.integer("duration_ns", {0, graph::kMostDuration.count()}, 0));
  service.inputs = read_channels(object, "inputs");
  service.outputs = read_channels(object, "outputs");
  if (const Json* operation = object.find("operation")) {
    service.operation = read_operation(*operation, {&place, "operation", {}});
  }
  if (const Json* copy = object.find("copy")) {
    service.copy = read_copy(*copy, {&place, "copy", {}});
  }
  plan_.add_service(std::move(service));
}

std::vector<uint32_t> PlanReader::read_channels(ObjectReader& service, std::string_view field) {
  std::vector<uint32_t> channels;
  service.list(field, [&](const Json& name, const Place& at) {
    if (!name.is_string()) return reading_.fail(at, "must be a channel's name");
    channels.push_back(channels_.find(name.get_ref<const std::string&>(), at, reading_));
  });
  return channels;
}

OperationSpec PlanReader::read_operation(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_, {"kind", "dtype", "count", "reduce_op", "root"});
  OperationSpec operation;
  operation.kind = object.choice<OpKind>("kind", static_cast<int>(OpKind::kSend));
  const bool has_data = operation.kind != OpKind::kBarrier;
  if (has_data) {
    operation.dtype = object.choice<DType>("dtype", kDTypeCount);
    operation.count = static_cast<uint64_t>(object.integer("count", {0, graph::kMostCount}));
  }
  if (reduces(operation.kind)) {
    operation.reduce_op = object.choice<ReduceOp>("reduce_op", kReduceOpCount);
  }
  if (has_root(operation.kind)) {
    operation.root = static_cast<uint32_t>(object.integer("root", {0, plan_.ranks - 1}));
  }
  const auto refuse = [&](std::string_view field, bool meant) {
    if (meant || object.find(field) == nullptr) return;
    reading_.fail({&place, field, {}}, fmt::format("{} has none", name_of(operation.kind)));
  };
  refuse("dtype", has_data);
  refuse("count", has_data);
  refuse("reduce_op", reduces(operation.kind));
  refuse("root", has_root(operation.kind));
  return operation;
}

CopySpec PlanReader::read_copy(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_, {"kind", "path", "offset", "stride", "count"});
  CopySpec copy;
  copy.kind = object.choice<CopyKind>("kind", 3);
  if (copy.kind == CopyKind::kMemory) {
    for (const std::string_view field : {"path", "offset", "stride", "count"}) {
      if (object.find(field) != nullptr) reading_.fail({&place, field, {}}, "memory has none");
    }
    return copy;
  }
  copy.path = object.text("path");
  if (reading_.ok() && !is_name(copy.path, graph::kMostPathBytes)) {
    reading_.fail({&place, "path", {}},
                  fmt::format("must be 1 to {} bytes of UTF-8 without control characters and "
                              "quotation marks",
                              graph::kMostPathBytes));
  }
  const auto number = [&object](std::string_view field, uint64_t most) {
    return static_cast<uint64_t>(object.integer(field, {0, static_cast<int64_t>(most)}, 0));
  };
  copy.offset = number("offset", graph::kMostOffset);
  copy.stride = number("stride", graph::kMostSlotBytes);
  copy.count = number("count", graph::kMostRanges);
  return copy;
}

}  // namespace

Result<Plan> from_json(const Json& value, std::string_view name) {
  return PlanReader(name).read(value);
}

Result<Plan> read_plan(std::string_view text, std::string_view name) {
  CORRO_ASSIGN(const Json value, parse_json(text, name));
  return from_json(value, name);
}

}  // namespace corro::plan
