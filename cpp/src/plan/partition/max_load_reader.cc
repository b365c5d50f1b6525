#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "plan/partition/instance_fields.h"

namespace corro::plan {
namespace {

/// The published program takes costs of one node's edges for equal if they differ by less.
constexpr double kSameCost = 1e-6;

class MaxLoadReader {
 public:
  explicit MaxLoadReader(std::string_view name) : reading_(name) {}

  Result<MaxLoadInstance> read(const Json& document) {
    ObjectReader top(document, {}, reading_,
                     {"maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges"});
    instance_.memory_bytes = read_quantity(top, {}, "maxSizePerFPGA", reading_);
    instance_.accelerators =
        static_cast<uint32_t>(top.integer("maxFPGAs", {0, kMostPartitionDevices}));
    instance_.processors =
        static_cast<uint32_t>(top.integer("maxCPUs", {0, kMostPartitionDevices}));
    check_length(top, "nodes", kMostPartitionNodes, reading_);
    check_length(top, "edges", kMostPartitionEdges, reading_);
    top.list("nodes", [this](const Json& item, const Place& place) { read_node(item, place); });
    if (reading_.ok() && instance_.nodes.empty()) {
      reading_.fail({nullptr, "nodes", {}}, "must not be empty");
    }
    instance_.colors = static_cast<uint32_t>(colors_.size()) + colorless_;
    top.list("edges", [this](const Json& item, const Place& place) { read_edge(item, place); });
    if (reading_.ok()) check_edges();
    CORRO_TRY(reading_.status());
    instance_.ids = ids_.all();
    return std::move(instance_);
  }

 private:
  void read_node(const Json& item, const Place& place);
  void read_edge(const Json& item, const Place& place);
  void check_edges();

  Reading reading_;
  NodeIds ids_;
  std::unordered_map<int64_t, uint32_t> colors_;
  uint32_t colorless_ = 0;
  std::vector<bool> has_cost_;
  MaxLoadInstance instance_;
};

void MaxLoadReader::read_node(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_,
                      {"id", "supportedOnFpga", "cpuLatency", "fpgaLatency", "isBackwardNode",
                       "colorClass", "size", "name", "layerId"});
  ids_.add(object, place, reading_);
  MaxLoadInstance::Node node;
  node.on_accelerator = read_flag(object, place, "supportedOnFpga", reading_);
  node.backward = read_flag(object, place, "isBackwardNode", reading_);
  node.processor_time = read_quantity(object, place, "cpuLatency", reading_);
  node.accelerator_time = read_quantity(object, place, "fpgaLatency", reading_);
  node.size = read_quantity(object, place, "size", reading_);
  // Colors count up together with the nodes that have none, and are a color of their own.
  using Limits = std::numeric_limits<int64_t>;
  node.color = static_cast<uint32_t>(colors_.size()) + colorless_;
  if (object.find("colorClass") == nullptr) {
    ++colorless_;
  } else {
    const int64_t color = object.integer("colorClass", {Limits::min(), Limits::max()});
    node.color = colors_.emplace(color, node.color).first->second;
  }
  instance_.nodes.push_back(std::move(node));
}

void MaxLoadReader::read_edge(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_, {"sourceId", "destId", "cost", "size"});
  const uint32_t source = ids_.read(object, place, "sourceId", reading_);
  const uint32_t dest = ids_.read(object, place, "destId", reading_);
  const double cost = read_quantity(object, place, "cost", reading_);
  if (!reading_.ok()) return;
  has_cost_.resize(instance_.nodes.size(), false);
  auto& node = instance_.nodes[source];
  if (!has_cost_[source]) node.send_time = cost;
  has_cost_[source] = true;
  if (std::abs(node.send_time - cost) > kSameCost) {
    reading_.fail({&place, "cost", {}}, fmt::format("is {}, but another edge of node {} costs {}",
                                                    cost, ids_.all()[source], node.send_time));
  }
  if (node.backward && !instance_.nodes[dest].backward) {
    reading_.fail(place, fmt::format("leads from backward node {} to forward node {}",
                                     ids_.all()[source], ids_.all()[dest]));
  }
  node.readers.push_back(dest);
}

void MaxLoadReader::check_edges() {
  if (instance_.accelerators + instance_.processors == 0) {
    reading_.fail({nullptr, "maxFPGAs", {}}, "must be at least 1, for there is no CPU either");
  }
  std::vector<std::vector<uint32_t>> next;
  for (const auto& node : instance_.nodes) next.push_back(node.readers);
  check_no_cycle(next, ids_, reading_);
}

}  // namespace

Result<MaxLoadInstance> read_max_load(const Json& document, std::string_view name) {
  return MaxLoadReader(name).read(document);
}

}  // namespace corro::plan
