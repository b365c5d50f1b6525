// Many equal blocks in a row at the price of one: the block's interior is eliminated once, and the
// chain is a min-plus power of what is left, a matrix over the block's two ends; O(K^3 log count).
//
//   CORRO_ASSIGN(const RepeatedBlock blocks, RepeatedBlock::create(block, in, out, 96));
//   graph.add_edge(embedding, head, blocks.costs());          // solve, then for the winner:
//   const auto inside = blocks.strategies(strategy_of_embedding, strategy_of_head);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "plan/solve/elimination.h"
#include "plan/solve/energy_graph.h"

namespace corro::plan {

class EliminationState;

/// Least sums over the middle: result(i, j) = min over k of left(i, k) + right(k, j). Requires
/// left.columns == right.rows.
[[nodiscard]] CostMatrix min_plus(const CostMatrix& left, const CostMatrix& right);

/// `count` copies of a block, the `out` of one being the `in` of the next. Immutable.
class RepeatedBlock {
 public:
  /// `in` and `out` are two nodes of the block with equally many strategies. Costs of both count in
  /// every copy: give the node that joins two copies its cost at one end and zeros at the other.
  /// INVALID_ARGUMENT as EnergyGraph::check() says and for ends that do not fit;
  /// RESOURCE_EXHAUSTED if the interior needs tables beyond options.max_table.
  [[nodiscard]] static Result<RepeatedBlock> create(const EnergyGraph& block, NodeId in, NodeId out,
                                                    uint32_t count,
                                                    const EliminationOptions& options = {});

  /// Least energy of the chain by the strategies of its first `in` and its last `out`.
  [[nodiscard]] const CostMatrix& costs() const { return products_.back(); }

  /// For each copy, the strategies of the block's nodes, when the chain's ends take these.
  [[nodiscard]] std::vector<std::vector<uint32_t>> strategies(uint32_t first, uint32_t last) const;

 private:
  RepeatedBlock(NodeId in, NodeId out, size_t nodes) : in_(in), out_(out), nodes_(nodes) {}
  void multiply(uint32_t count);
  void find_path(size_t power, uint32_t first, uint32_t last, std::vector<uint32_t>& path) const;

  NodeId in_;
  NodeId out_;
  size_t nodes_;
  std::shared_ptr<const EliminationState> interior_;  ///< Shared by the copies of this object.
  std::vector<CostMatrix> powers_;                    ///< Of 1, 2, 4, ... copies.
  std::vector<size_t> factors_;                       ///< Powers whose product is the chain.
  std::vector<CostMatrix> products_;                  ///< Of the first, the first two, ... factors.
};

}  // namespace corro::plan
