// A pairwise energy on a graph: each node takes one of its strategies at a cost, and each edge adds
// a cost that depends on both of its ends. What sharding inside a stage is (planning.md 3a).
//
//   EnergyGraph graph;
//   const NodeId a = graph.add_node({4, 6});
//   const NodeId b = graph.add_node({9, 3});
//   graph.add_edge(a, b, CostMatrix(2, 2, {0, 2, 2, 0}));
//   CORRO_ASSIGN(const Optimum best, minimise(graph));   // elimination.h: 9 at (1, 1)
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"

namespace corro::plan {

using NodeId = uint32_t;

/// Cost of what cannot be.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// Costs of pairs: row = strategy of the first end, column = strategy of the second.
struct CostMatrix {
  CostMatrix() = default;
  CostMatrix(size_t row_count, size_t column_count, double cost = 0)
      : rows(row_count), columns(column_count), cells(row_count * column_count, cost) {}
  /// `row_major` has row_count * column_count cells.
  CostMatrix(size_t row_count, size_t column_count, std::vector<double> row_major);

  [[nodiscard]] double& at(size_t row, size_t column) { return cells[row * columns + column]; }
  [[nodiscard]] double at(size_t row, size_t column) const { return cells[row * columns + column]; }

  size_t rows = 0;
  size_t columns = 0;
  std::vector<double> cells;
};

/// Nodes and edges in the order in which they were added. Any costs may be kNever; edges may be
/// parallel.
struct EnergyGraph {
  struct Edge {
    NodeId first;
    NodeId second;
    CostMatrix costs;
  };

  /// One cost for each strategy of the node.
  NodeId add_node(std::vector<double> costs);
  void add_edge(NodeId first, NodeId second, CostMatrix costs);

  /// INVALID_ARGUMENT for a node without strategies, an edge from a node to itself or to a node
  /// that is not there, a matrix of another size than its ends, and a cost that is no number or
  /// minus infinity.
  [[nodiscard]] Status check() const;
  /// What this choice costs; `strategies` has one for each node. Requires check().ok().
  [[nodiscard]] double energy(std::span<const uint32_t> strategies) const;

  std::vector<std::vector<double>> nodes;
  std::vector<Edge> edges;
};

}  // namespace corro::plan
