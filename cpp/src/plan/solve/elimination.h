// The strategies of least energy, found by eliminating node after node.
//
// Eliminating a node replaces all costs that know of it by one table over its neighbours, which
// holds the least that the node can add. A node without neighbours gives a number (R0), a leaf is
// folded into its neighbour (RI), a node between two others becomes an edge (RII); that finishes
// every series-parallel graph, a transformer's among them, in O(nodes K^3). Nodes with more
// neighbours make larger tables; what does not fit in `max_table` is solved by branch and bound on
// the node with most neighbours, whose bounds come from eliminating in parts (mini-buckets). So an
// answer always says how far it can be from the optimum.
// Source: planning.md 3a; Dechter, Rish, "Mini-buckets: a general scheme for bounded inference",
// J. ACM 50(2), 2003.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "plan/solve/energy_graph.h"

namespace corro::plan {

struct EliminationOptions {
  /// Most entries of one table, the node's own strategies counted: time and memory of one step.
  size_t max_table = size_t{1} << 20U;
  /// Most graphs that branch and bound looks into; 0 = the first bound and its guess.
  uint32_t max_branches = 256;
  /// Nodes in the order in which to eliminate them; empty = smallest table first.
  std::vector<NodeId> order = {};
};

/// bound <= least energy <= value. `value` is the energy of `strategies`, kNever where no choice
/// was found that can be.
struct Optimum {
  double value = kNever;
  double bound = -kNever;
  bool exact = false;                ///< No choice costs less than value.
  std::vector<uint32_t> strategies;  ///< By node.
  size_t largest_table = 0;          ///< Entries.
  uint32_t branches = 0;             ///< Graphs that branch and bound looked into.
};

/// INVALID_ARGUMENT as EnergyGraph::check() says, and for an order that does not name each node
/// once. Pure; the same input gives the same choice.
[[nodiscard]] Result<Optimum> minimise(const EnergyGraph& graph,
                                       const EliminationOptions& options = {});

}  // namespace corro::plan
