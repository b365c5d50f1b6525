#include "plan/partition/stage_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace corro::plan {
namespace {

constexpr size_t kMostStages = 2'000'000;
constexpr size_t kMostEntries = size_t{1} << 25U;  // 256 MiB.
/// Keeps a lower bound below sums of the same numbers in another order.
constexpr double kRounding = 1e-12;

}  // namespace

Result<StageTable> StageTable::create(const PiperInstance& instance, const Ideals& ideals,
                                      std::vector<uint32_t> order) {
  StageTable table(instance, ideals, std::move(order));
  table.list_degrees();
  CORRO_TRY(table.list_stages());
  return table;
}

StageTable::StageTable(const PiperInstance& instance, const Ideals& ideals,
                       std::vector<uint32_t> order)
    : instance_(instance),
      ideals_(ideals),
      order_(std::move(order)),
      most_degree_sum_(
          static_cast<uint32_t>(std::min<uint64_t>(instance.micro_batches, instance.devices))),
      choices_(instance.memory_bytes) {}

void StageTable::list_degrees() {
  for (uint32_t number = 0; number < instance_.degrees.size(); ++number) {
    const uint32_t tensor = instance_.degrees[number];
    for (uint32_t data = 1; data <= instance_.devices / tensor; ++data) {
      if (instance_.micro_batches % data == 0) degrees_.push_back({number, tensor, data});
    }
  }
}

Status StageTable::list_stages() {
  const size_t entries_per_stage = std::max<size_t>(degrees_.size(), 1);
  bool too_many = false;
  begin_.assign(1, 0);
  begin_.push_back(0);  // The empty ideal ends no stage.
  for (IdealId ideal = 1; ideal < ideals_.count(); ++ideal) {
    ideals_.visit_below(
        ideal,
        [&](uint32_t /*node*/, IdealId below) {
          too_many = too_many || below_.size() == kMostStages ||
                     below_.size() * entries_per_stage > kMostEntries;
          if (!too_many) below_.push_back(below);
          return !too_many;
        },
        [](uint32_t /*node*/) {});
    if (too_many) {
      return {Code::kResourceExhausted,
              fmt::format("the graph has more than {} contiguous stages, too many for {} pairs of "
                          "degrees",
                          below_.size(), degrees_.size())};
    }
    begin_.push_back(below_.size());
  }
  entries_.resize(below_.size() * degrees_.size());
  for (IdealId ideal = 1; ideal < ideals_.count(); ++ideal) {
    for (size_t stage = first_stage(ideal); stage < end_stage(ideal); ++stage) {
      for (size_t number = 0; number < instance_.degrees.size(); ++number) {
        least_.push_back(least_of(ideal, below_[stage], number));
      }
    }
  }
  return {};
}

/// Every cut edge is crossed by activations and by their gradients.
double StageTable::edge_bytes(IdealId ideal, IdealId below, uint32_t node,
                              const PiperInstance::Choice& choice) const {
  const auto& in = instance_.nodes[node].in;
  const auto& out = instance_.nodes[node].out;
  double bytes = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!within(ideal, below, in[i].node)) bytes += 2 * (in[i].bytes + choice.sync_in[i]);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (!within(ideal, below, out[i].node)) bytes += 2 * (out[i].bytes + choice.sync_out[i]);
  }
  return bytes;
}

/// Seconds per sample. Gradients are exchanged once for all micro-batches, with the published
/// program's factor: through servers that hold a part of the parameters each, 4 (d-1)/d in all.
double StageTable::time_of(double time, double edge_bytes, double parameter_bytes,
                           uint32_t data) const {
  const double replicas = data;
  const double exchanged = 4 * (replicas - 1) * parameter_bytes / replicas /
                           static_cast<double>(instance_.micro_batches);
  return (edge_bytes / replicas + exchanged) / instance_.bandwidth + time / replicas;
}

StageTable::Least StageTable::least_of(IdealId ideal, IdealId below, size_t tensor_number) const {
  Least least;
  double memory = 0;
  for (uint32_t node = 0; node < instance_.nodes.size(); ++node) {
    if (!within(ideal, below, node)) continue;
    const auto& ways = instance_.nodes[node].choices[tensor_number];
    if (ways.empty()) return least;
    constexpr double kEndless = std::numeric_limits<double>::infinity();
    double time = kEndless;
    double parameters = kEndless;
    double edges = kEndless;
    double bytes = kEndless;
    for (const auto& way : ways) {
      time = std::min(time, way.time);
      parameters = std::min(parameters, way.parameter_bytes);
      edges = std::min(edges, edge_bytes(ideal, below, node, way));
      bytes = std::min(bytes, way.memory_in_flight + way.memory_fixed);
    }
    least.time += time;
    least.parameter_bytes += parameters;
    least.edge_bytes += edges;
    memory += bytes;
  }
  least.fits = memory <= instance_.memory_bytes * (1 + kRounding);
  return least;
}

double StageTable::least_time(size_t stage, const Degrees& degrees) const {
  const Least& least = least_[stage * instance_.degrees.size() + degrees.tensor_number];
  if (!least.fits) return std::numeric_limits<double>::infinity();
  return time_of(least.time, least.edge_bytes, least.parameter_bytes, degrees.data) *
         (1 - kRounding);
}

std::vector<uint32_t> StageTable::fill(IdealId ideal, size_t stage, const Degrees& degrees,
                                       StageChoices& choices) const {
  std::vector<uint32_t> nodes;
  std::vector<LayerWay> ways;
  choices.clear();
  for (uint32_t node = 0; node < instance_.nodes.size(); ++node) {
    if (!within(ideal, below_[stage], node)) continue;
    nodes.push_back(node);
    ways.clear();
    for (const auto& choice : instance_.nodes[node].choices[degrees.tensor_number]) {
      const double edges = edge_bytes(ideal, below_[stage], node, choice);
      ways.push_back({time_of(choice.time, edges, choice.parameter_bytes, degrees.data),
                      choice.memory_in_flight, choice.memory_fixed});
    }
    choices.add_node(ways);
  }
  return nodes;
}

std::span<const StageTable::Row> StageTable::rows(IdealId ideal, size_t stage, size_t degrees) {
  Entry& entry = entries_[stage * degrees_.size() + degrees];
  if (entry.count == kUnknown) {
    entry = {static_cast<uint32_t>(rows_.size()), 0};
    const uint32_t data = degrees_[degrees].data;
    const uint64_t most = (most_degree_sum_ + data - 1) / data;
    fill(ideal, stage, degrees_[degrees], choices_);
    for (uint64_t in_flight = 1; in_flight <= most && choices_.find(in_flight);) {
      // What fits now is the fastest until it fits no longer.
      const uint64_t end = std::max(in_flight, choices_.fits_up_to(most));
      rows_.push_back({end, choices_.time()});
      in_flight = end + 1;
    }
    entry.count = static_cast<uint32_t>(rows_.size()) - entry.begin;
  }
  return {rows_.data() + entry.begin, entry.count};
}

}  // namespace corro::plan
