// Costs of a few nodes together, and the one operation that elimination is made of. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan/solve/energy_graph.h"

namespace corro::plan {

/// A cost for each combination of the nodes' strategies.
struct CostTable {
  std::vector<NodeId> nodes;    ///< Ascending.
  std::vector<uint32_t> sizes;  ///< Strategies of each node.
  std::vector<double> cells;    ///< Row-major: the last node's strategy runs fastest.

  [[nodiscard]] bool has(NodeId node) const;
  /// Cells from one strategy of this node to the next; 0 if the table does not have it.
  [[nodiscard]] size_t stride_of(NodeId node) const;
  /// The cost where every node takes strategies[node].
  [[nodiscard]] double cost_of(std::span<const uint32_t> strategies) const;
};

/// Shared by the graphs of branch and bound and by the trails that lead back; nobody changes it.
using SharedTable = std::shared_ptr<const CostTable>;

/// All nodes of the tables but this one, ascending, with their sizes and without cells.
[[nodiscard]] CostTable neighbours_of(NodeId node, std::span<const SharedTable> tables);

/// The least sum of the tables over this node's strategies, as a table over its neighbours. Each
/// table has the node. O(strategies x cells of the result x tables).
[[nodiscard]] CostTable eliminate(NodeId node, uint32_t strategies,
                                  std::span<const SharedTable> tables);

/// The part of the table where the node takes one of these strategies, which are numbered anew.
[[nodiscard]] CostTable keep_strategies(const CostTable& table, NodeId node,
                                        std::span<const uint32_t> kept);

/// keep_strategies() with one, and without the node.
[[nodiscard]] CostTable pin_strategy(const CostTable& table, NodeId node, uint32_t strategy);

}  // namespace corro::plan
