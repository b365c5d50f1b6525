#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "plan/partition/instance_fields.h"

namespace corro::plan {
namespace {

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

class PiperReader {
 public:
  explicit PiperReader(std::string_view name) : reading_(name) {}

  Result<PiperInstance> read(const Json& document);

 private:
  void read_limits(ObjectReader& top);
  void read_id(const Json& item, const Place& place);
  void read_edge(const Json& item, const Place& place);
  void read_choices_of_node(size_t number, const Json& node, const Place& place);
  void read_choices(size_t number, size_t degree, const Json& list, const Place& place);
  PiperInstance::Choice read_choice(const PiperInstance::Node& node, const Json& item,
                                    const Place& place);
  std::vector<double> read_sync(const std::vector<PiperInstance::Edge>& edges,
                                const ObjectReader& choice, const Place& place,
                                std::string_view field);
  void find_degrees(const Json& nodes);

  Reading reading_;
  NodeIds ids_;
  std::set<std::pair<uint32_t, uint32_t>> edges_;
  PiperInstance instance_;
};

Result<PiperInstance> PiperReader::read(const Json& document) {
  ObjectReader top(document, {}, reading_,
                   {"maxMemoryPerDevice", "maxDevices", "mbsInBatch", "maxBatchSize", "bandwidth",
                    "nodes", "edges"});
  read_limits(top);
  check_length(top, "nodes", kMostPartitionNodes, reading_);
  check_length(top, "edges", kMostPartitionEdges, reading_);
  // Choices speak of edges, and edges of nodes.
  top.list("nodes", [this](const Json& item, const Place& place) { read_id(item, place); });
  if (reading_.ok() && ids_.all().empty())
    reading_.fail({nullptr, "nodes", {}}, "must not be empty");
  instance_.ids = ids_.all();
  instance_.nodes.resize(instance_.ids.size());
  top.list("edges", [this](const Json& item, const Place& place) { read_edge(item, place); });
  if (reading_.ok()) {
    find_degrees(document["nodes"]);
    size_t number = 0;
    top.list("nodes", [&](const Json& item, const Place& place) {
      read_choices_of_node(number++, item, place);
    });
    std::vector<std::vector<uint32_t>> next(instance_.nodes.size());
    for (const auto& [source, dest] : edges_) next[source].push_back(dest);
    check_no_cycle(next, ids_, reading_);
  }
  CORRO_TRY(reading_.status());
  return std::move(instance_);
}

void PiperReader::read_limits(ObjectReader& top) {
  instance_.memory_bytes = read_positive(top, {}, "maxMemoryPerDevice", reading_);
  instance_.devices = static_cast<uint32_t>(top.integer("maxDevices", {1, kMostPartitionDevices}));
  // Files say the one, the documentation says the other.
  const bool documented = top.find("maxBatchSize") != nullptr;
  if (documented && top.find("mbsInBatch") != nullptr) {
    reading_.fail({nullptr, "maxBatchSize", {}}, "is another name of mbsInBatch: give one of them");
  }
  instance_.micro_batches = static_cast<uint64_t>(top.integer(
      documented ? "maxBatchSize" : "mbsInBatch", {1, static_cast<int64_t>(kMostMicroBatches)}));
  instance_.bandwidth = read_positive(top, {}, "bandwidth", reading_);
}

void PiperReader::read_id(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_, {"id", "name", "TMPCs"});
  ids_.add(object, place, reading_);
  const Json* degrees = object.find("TMPCs");
  if (degrees == nullptr || !degrees->is_object()) {
    reading_.fail({&place, "TMPCs", {}}, degrees == nullptr ? "is missing" : "must be an object");
  }
}

void PiperReader::read_edge(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_, {"sourceId", "destId", "communicationCost"});
  const uint32_t source = ids_.read(object, place, "sourceId", reading_);
  const uint32_t dest = ids_.read(object, place, "destId", reading_);
  const double bytes = read_quantity(object, place, "communicationCost", reading_);
  if (!reading_.ok()) return;
  if (!edges_.emplace(source, dest).second) {
    return reading_.fail(place, fmt::format("leads from node {} to node {} like another edge",
                                            ids_.all()[source], ids_.all()[dest]));
  }
  instance_.nodes[source].out.push_back({dest, bytes});
  instance_.nodes[dest].in.push_back({source, bytes});
}

/// The names of the choices' lists are numbers of devices.
void PiperReader::find_degrees(const Json& nodes) {
  std::set<uint32_t> degrees;
  const Place all{nullptr, "nodes", {}};
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Place node{&all, {}, i};
    const Place at{&node, "TMPCs", {}};
    for (const auto& [name, list] : nodes[i]["TMPCs"].items()) {
      const auto degree = to_integer(name);
      if (!degree || *degree < 1 || *degree > kMostPartitionDevices) {
        return reading_.fail({&at, name, {}}, fmt::format("must be named by a number from 1 to {}",
                                                          kMostPartitionDevices));
      }
      degrees.insert(static_cast<uint32_t>(*degree));
    }
  }
  if (degrees.size() > kMostDegrees) {
    return reading_.fail(all, fmt::format("have {} tensor parallel degrees; at most {} are read",
                                          degrees.size(), kMostDegrees));
  }
  instance_.degrees.assign(degrees.begin(), degrees.end());
}

void PiperReader::read_choices_of_node(size_t number, const Json& node, const Place& place) {
  const Place at{&place, "TMPCs", {}};
  instance_.nodes[number].choices.resize(instance_.degrees.size());
  for (const auto& [name, list] : node["TMPCs"].items()) {
    const auto degree = static_cast<uint32_t>(to_integer(name).value_or(1));
    const auto found = std::ranges::lower_bound(instance_.degrees, degree);
    read_choices(number, static_cast<size_t>(found - instance_.degrees.begin()), list,
                 {&at, name, {}});
  }
}

void PiperReader::read_choices(size_t number, size_t degree, const Json& list, const Place& place) {
  auto& node = instance_.nodes[number];
  if (!list.is_array()) return reading_.fail(place, "must be a list");
  if (list.size() > kMostChoices) {
    return reading_.fail(
        place, fmt::format("has {} items; at most {} are read", list.size(), kMostChoices));
  }
  if (!node.choices[degree].empty()) return reading_.fail(place, "comes twice");  // "1" and "01".
  std::set<std::string> names;
  for (size_t i = 0; i < list.size() && reading_.ok(); ++i) {
    const Place at{&place, {}, i};
    node.choices[degree].push_back(read_choice(node, list[i], at));
    const std::string& id = node.choices[degree].back().id;
    if (!is_name(id)) {
      reading_.fail({&at, "id", {}}, fmt::format("must be 1 to {} bytes of UTF-8 without control "
                                                 "characters and quotation marks",
                                                 kMostNameBytes));
    } else if (!names.insert(id).second) {
      reading_.fail({&at, "id", {}}, fmt::format("\"{}\" comes twice", id));
    }
  }
}

PiperInstance::Choice PiperReader::read_choice(const PiperInstance::Node& node, const Json& item,
                                               const Place& place) {
  ObjectReader object(item, place, reading_,
                      {"id", "timePerSample", "parameterSize", "memoryUsageA", "memoryUsageB",
                       "syncTimeFw", "syncTimeBw"});
  PiperInstance::Choice choice;
  choice.id = object.text("id");
  choice.time = read_quantity(object, place, "timePerSample", reading_);
  choice.parameter_bytes = read_quantity(object, place, "parameterSize", reading_);
  choice.memory_in_flight = read_quantity(object, place, "memoryUsageA", reading_);
  choice.memory_fixed = read_quantity(object, place, "memoryUsageB", reading_);
  choice.sync_in = read_sync(node.in, object, place, "syncTimeFw");
  choice.sync_out = read_sync(node.out, object, place, "syncTimeBw");
  return choice;
}

std::vector<double> PiperReader::read_sync(const std::vector<PiperInstance::Edge>& edges,
                                           const ObjectReader& choice, const Place& place,
                                           std::string_view field) {
  const Place at{&place, field, {}};
  std::vector<double> bytes;
  const Json* by_node = choice.find(field);
  if (by_node == nullptr || !by_node->is_object()) {
    reading_.fail(at, by_node == nullptr ? "is missing" : "must be an object");
    return bytes;
  }
  for (const auto& edge : edges) {
    const std::string id = std::to_string(ids_.all()[edge.node]);
    const auto found = by_node->find(id);
    if (found == by_node->end()) {
      reading_.fail(at, fmt::format("lacks the edge with node {}", id));
      return bytes;
    }
    bytes.push_back(read_quantity(*found, {&at, id, {}}, reading_));
  }
  if (by_node->size() != edges.size()) {
    reading_.fail(
        at, fmt::format("names {} nodes, but {} edges lead there", by_node->size(), edges.size()));
  }
  return bytes;
}

}  // namespace

Result<PiperInstance> read_piper(const Json& document, std::string_view name) {
  return PiperReader(name).read(document);
}

}  // namespace corro::plan
