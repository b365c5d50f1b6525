#include "plan/partition/max_load_graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "plan/partition/components.h"

namespace corro::plan {
namespace {

using Lists = std::vector<std::vector<uint32_t>>;

/// The forward graph of the colors. A color without forward nodes has no place in it, so its
/// backward edges say where it stands: they are turned around, as if its forward part mirrored
/// them.
Lists forward_graph(const MaxLoadInstance& instance) {
  std::vector<bool> has_forward(instance.colors, false);
  for (const auto& node : instance.nodes) {
    if (!node.backward) has_forward[node.color] = true;
  }
  Lists next(instance.colors);
  for (const auto& node : instance.nodes) {
    for (const uint32_t reader : node.readers) {
      const auto& end = instance.nodes[reader];
      if (node.color == end.color) continue;
      if (!node.backward && !end.backward) {
        next[node.color].push_back(end.color);
      } else if (node.backward && end.backward &&
                 (!has_forward[node.color] || !has_forward[end.color])) {
        next[end.color].push_back(node.color);
      }
    }
  }
  return next;
}

/// The graph of units while units join each other.
class Draft {
 public:
  Draft(const MaxLoadInstance& instance, const Lists& next, const Components& components);

  void join_idle_units(IdleSizes idle_sizes);
  [[nodiscard]] MaxLoadGraph finish() const;

 private:
  void join(uint32_t unit, uint32_t into);
  [[nodiscard]] std::optional<uint32_t> neighbour_to_join(uint32_t unit) const;
  [[nodiscard]] bool joined(uint32_t unit) const { return joined_[unit] != unit; }

  std::vector<MaxLoadGraph::Unit> units_;
  std::vector<uint32_t> joined_;  ///< The unit that each unit has joined, or itself.
  std::vector<std::set<uint32_t>> predecessors_;
  std::vector<std::set<uint32_t>> successors_;
  std::vector<std::set<uint32_t>> nets_;  ///< The units of each.
  std::vector<double> send_times_;
  std::vector<std::vector<uint32_t>> nets_of_unit_;
};

Draft::Draft(const MaxLoadInstance& instance, const Lists& next, const Components& components)
    : units_(components.count), predecessors_(components.count), successors_(components.count) {
  for (uint32_t unit = 0; unit < components.count; ++unit) joined_.push_back(unit);
  nets_of_unit_.resize(components.count);
  for (uint32_t i = 0; i < instance.nodes.size(); ++i) {
    const auto& node = instance.nodes[i];
    const uint32_t number = components.of[node.color];
    auto& unit = units_[number];
    unit.on_accelerator = unit.on_accelerator && node.on_accelerator;
    unit.processor_time += node.processor_time;
    unit.accelerator_time += node.accelerator_time;
    unit.size += node.size;
    unit.bytes += node.size;
    unit.nodes.push_back(i);
    std::set<uint32_t> net{number};
    for (const uint32_t reader : node.readers) {
      net.insert(components.of[instance.nodes[reader].color]);
    }
    if (net.size() == 1 || node.send_time == 0) continue;
    for (const uint32_t member : net) {
      nets_of_unit_[member].push_back(static_cast<uint32_t>(nets_.size()));
    }
    nets_.push_back(std::move(net));
    send_times_.push_back(node.send_time);
  }
  for (uint32_t color = 0; color < next.size(); ++color) {
    for (const uint32_t end : next[color]) {
      const uint32_t from = components.of[color];
      const uint32_t to = components.of[end];
      if (from == to) continue;
      successors_[from].insert(to);
      predecessors_[to].insert(from);
    }
  }
}

/// The only unit that all edges and nets of `unit` lead to, if there is one.
std::optional<uint32_t> Draft::neighbour_to_join(uint32_t unit) const {
  const auto& before = predecessors_[unit];
  const auto& after = successors_[unit];
  if (before.size() + after.size() > 1) return {};
  std::set<uint32_t> candidates = before.empty() ? after : before;
  if (candidates.empty() && !nets_of_unit_[unit].empty()) {
    candidates = nets_[nets_of_unit_[unit].front()];
    candidates.erase(unit);
  }
  for (const uint32_t candidate : candidates) {
    if (std::ranges::all_of(nets_of_unit_[unit],
                            [&](uint32_t net) { return nets_[net].contains(candidate); })) {
      return candidate;
    }
  }
  return {};
}

void Draft::join(uint32_t unit, uint32_t into) {
  joined_[unit] = into;
  units_[into].bytes += units_[unit].bytes;
  auto& nodes = units_[into].nodes;
  nodes.insert(nodes.end(), units_[unit].nodes.begin(), units_[unit].nodes.end());
  predecessors_[into].erase(unit);
  successors_[into].erase(unit);
  for (const uint32_t net : nets_of_unit_[unit]) {
    nets_[net].erase(unit);
    if (nets_[net].size() == 1) std::erase(nets_of_unit_[into], net);
  }
}

void Draft::join_idle_units(IdleSizes idle_sizes) {
  std::vector<uint32_t> candidates = joined_;
  while (!candidates.empty()) {
    const uint32_t number = candidates.back();
    candidates.pop_back();
    const auto& unit = units_[number];
    const bool idle = unit.on_accelerator && unit.processor_time == 0 &&
                      unit.accelerator_time == 0 &&
                      (unit.size == 0 || idle_sizes == IdleSizes::kIgnored);
    if (!idle || joined(number)) continue;
    const auto neighbour = neighbour_to_join(number);
    if (!neighbour) continue;
    join(number, *neighbour);
    candidates.push_back(*neighbour);  // May now have a single neighbour, too.
  }
}

MaxLoadGraph Draft::finish() const {
  MaxLoadGraph graph;
  std::vector<uint32_t> numbers(units_.size(), 0);
  for (uint32_t unit = 0; unit < units_.size(); ++unit) {
    if (joined(unit)) continue;
    numbers[unit] = static_cast<uint32_t>(graph.units.size());
    graph.units.push_back(units_[unit]);
    graph.predecessors.emplace_back();
    for (const uint32_t before : predecessors_[unit]) {
      graph.predecessors.back().push_back(numbers[before]);
    }
  }
  std::map<std::set<uint32_t>, double> nets;  // Outputs that meet the same units are one net.
  for (size_t i = 0; i < nets_.size(); ++i) {
    if (nets_[i].size() > 1) nets[nets_[i]] += send_times_[i];
  }
  for (const auto& [members, send_time] : nets) {
    for (const uint32_t member : members) {
      graph.units[numbers[member]].nets.push_back(static_cast<uint32_t>(graph.nets.size()));
    }
    graph.nets.push_back({send_time, static_cast<uint32_t>(members.size())});
  }
  return graph;
}

}  // namespace

MaxLoadGraph contract(const MaxLoadInstance& instance, IdleSizes idle_sizes) {
  const Lists next = forward_graph(instance);
  Draft draft(instance, next, find_components(next));
  draft.join_idle_units(idle_sizes);
  return draft.finish();
}

}  // namespace corro::plan
