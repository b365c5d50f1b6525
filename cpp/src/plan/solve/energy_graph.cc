#include "plan/solve/energy_graph.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace corro::plan {
namespace {

bool are_costs(const std::vector<double>& costs) {
  return std::ranges::all_of(costs, [](double cost) { return cost > -kNever; });
}

Status bad_graph(std::string_view kind, size_t number, std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("energy graph: {} {}: {}", kind, number, what)};
}

}  // namespace

CostMatrix::CostMatrix(size_t row_count, size_t column_count, std::vector<double> row_major)
    : rows(row_count), columns(column_count), cells(std::move(row_major)) {
  CORRO_CHECK(cells.size() == rows * columns, cells.size(), rows, columns);
}

NodeId EnergyGraph::add_node(std::vector<double> costs) {
  nodes.push_back(std::move(costs));
  return static_cast<NodeId>(nodes.size() - 1);
}

void EnergyGraph::add_edge(NodeId first, NodeId second, CostMatrix costs) {
  edges.push_back({first, second, std::move(costs)});
}

Status EnergyGraph::check() const {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].empty()) return bad_graph("node", i, "has no strategies");
    if (!are_costs(nodes[i])) return bad_graph("node", i, "a cost is no number or -infinity");
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto& [first, second, costs] = edges[i];
    if (first >= nodes.size() || second >= nodes.size())
      return bad_graph("edge", i,
                       fmt::format("joins nodes {} and {} of {}", first, second, nodes.size()));
    if (first == second) return bad_graph("edge", i, "joins a node with itself");
    if (costs.rows != nodes[first].size() || costs.columns != nodes[second].size())
      return bad_graph("edge", i,
                       fmt::format("is {} x {}, its ends have {} and {} strategies", costs.rows,
                                   costs.columns, nodes[first].size(), nodes[second].size()));
    if (!are_costs(costs.cells)) return bad_graph("edge", i, "a cost is no number or -infinity");
  }
  return {};
}

double EnergyGraph::energy(std::span<const uint32_t> strategies) const {
  CORRO_CHECK(strategies.size() == nodes.size(), strategies.size(), nodes.size());
  double sum = 0;
  for (size_t i = 0; i < nodes.size(); ++i) sum += nodes[i][strategies[i]];
  for (const Edge& edge : edges)
    sum += edge.costs.at(strategies[edge.first], strategies[edge.second]);
  return sum;
}

}  // namespace corro::plan
