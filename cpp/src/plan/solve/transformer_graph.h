// For tests and measurements: operator graphs of transformers with random costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "plan/solve/energy_graph.h"

namespace corro::plan {

struct TransformerGraph {
  uint32_t blocks = 1;
  uint32_t strategies = 8;
  uint64_t seed = 1;
  bool equal_blocks = false;  ///< Same costs in every block.
};

/// Random costs in (0, 10), the same on every machine.
class RandomCosts {
 public:
  explicit RandomCosts(uint64_t seed) : random_(seed) {}

  double next() { return static_cast<double>(random_() >> 11U) * 0x1.0p-53 * 10; }
  std::vector<double> vector(size_t count) {
    std::vector<double> costs(count);
    for (double& cost : costs) cost = next();
    return costs;
  }
  CostMatrix matrix(size_t rows, size_t columns) { return {rows, columns, vector(rows * columns)}; }
  uint32_t upto(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

 private:
  std::mt19937_64 random_;
};

/// Adds the 14 operators of a block after `residual` and returns its last one; 18 edges.
inline NodeId add_transformer_block(EnergyGraph& graph, NodeId residual, RandomCosts& costs) {
  const size_t strategies = graph.nodes[residual].size();
  const auto node = [&](std::initializer_list<NodeId> inputs) {
    const NodeId added = graph.add_node(costs.vector(strategies));
    for (const NodeId input : inputs)
      graph.add_edge(input, added, costs.matrix(strategies, strategies));
    return added;
  };
  const NodeId norm = node({residual});
  const NodeId query = node({norm});
  const NodeId key = node({norm});
  const NodeId value = node({norm});
  const NodeId scores = node({query, key});
  const NodeId softmax = node({scores});
  const NodeId attention = node({softmax, value});
  const NodeId projection = node({attention});
  const NodeId sum = node({projection, residual});
  const NodeId second_norm = node({sum});
  const NodeId up = node({second_norm});
  const NodeId activation = node({up});
  const NodeId down = node({activation});
  return node({down, sum});
}

/// 14 nodes and 18 edges a block, and the embedding: node 0.
inline EnergyGraph make_transformer_graph(const TransformerGraph& shape) {
  RandomCosts costs(shape.seed);
  EnergyGraph graph;
  NodeId residual = graph.add_node(costs.vector(shape.strategies));
  const RandomCosts block = costs;
  for (uint32_t i = 0; i < shape.blocks; ++i) {
    if (shape.equal_blocks) costs = block;
    residual = add_transformer_block(graph, residual, costs);
  }
  return graph;
}

}  // namespace corro::plan
