#include "plan/solve/repeated_block.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "plan/solve/elimination_state.h"

namespace corro::plan {
namespace {

/// The middle by which left(row, .) + right(., column) is least.
uint32_t best_middle(const CostMatrix& left, uint32_t row, const CostMatrix& right,
                     uint32_t column) {
  uint32_t best = 0;
  double least = kNever;
  for (uint32_t middle = 0; middle < left.columns; ++middle) {
    const double cost = left.at(row, middle) + right.at(middle, column);
    if (cost >= least) continue;
    least = cost;
    best = middle;
  }
  return best;
}

/// The sum of the tables that are left over the two ends.
CostMatrix matrix_of(const EliminationState& state, size_t nodes, NodeId in, NodeId out) {
  CostMatrix matrix(state.strategies_of(in), state.strategies_of(out), state.constant());
  std::vector<uint32_t> at(nodes);
  for (at[in] = 0; at[in] < matrix.rows; ++at[in]) {
    for (at[out] = 0; at[out] < matrix.columns; ++at[out]) {
      double& cell = matrix.at(at[in], at[out]);
      for (const SharedTable& table : state.tables_of(in)) cell += table->cost_of(at);
      for (const SharedTable& table : state.tables_of(out)) {
        if (!table->has(in)) cell += table->cost_of(at);
      }
    }
  }
  return matrix;
}

}  // namespace

CostMatrix min_plus(const CostMatrix& left, const CostMatrix& right) {
  CORRO_CHECK(left.columns == right.rows, left.columns, right.rows);
  CostMatrix result(left.rows, right.columns, kNever);
  for (size_t row = 0; row < left.rows; ++row) {
    double* out = result.cells.data() + row * result.columns;
    for (size_t middle = 0; middle < left.columns; ++middle) {
      const double base = left.at(row, middle);
      const double* from = right.cells.data() + middle * right.columns;
      for (size_t i = 0; i < right.columns; ++i)
        out[i] = base + from[i] < out[i] ? base + from[i] : out[i];
    }
  }
  return result;
}

Result<RepeatedBlock> RepeatedBlock::create(const EnergyGraph& block, NodeId in, NodeId out,
                                            uint32_t count, const EliminationOptions& options) {
  CORRO_TRY(block.check());
  const auto bad = [&](std::string_view what) {
    return Status(Code::kInvalidArgument,
                  fmt::format("repeated block: ends {} and {}: {}", in, out, what));
  };
  if (in >= block.nodes.size() || out >= block.nodes.size() || in == out)
    return bad(fmt::format("must be two of {} nodes", block.nodes.size()));
  if (block.nodes[in].size() != block.nodes[out].size())
    return bad("have different numbers of strategies");
  if (count == 0) return bad("there are no copies");
  EliminationState interior(block);
  const std::vector<NodeId> ends{in, out};
  interior.reduce(options, ends);
  for (NodeId node = 0; node < block.nodes.size(); ++node) {
    if (node != in && node != out && interior.strategies_of(node) > 0)
      return Status(Code::kResourceExhausted,
                    fmt::format("repeated block: node {} needs a table of more than {} entries",
                                node, options.max_table));
  }
  RepeatedBlock result(in, out, block.nodes.size());
  result.powers_.push_back(matrix_of(interior, block.nodes.size(), in, out));
  result.interior_ = std::make_shared<const EliminationState>(std::move(interior));
  result.multiply(count);
  return result;
}

void RepeatedBlock::multiply(uint32_t count) {
  for (size_t power = 0; (count >> power) > 0; ++power) {
    if (power > 0) powers_.push_back(min_plus(powers_.back(), powers_.back()));
    if (((count >> power) & 1U) == 0) continue;
    products_.push_back(products_.empty() ? powers_[power]
                                          : min_plus(products_.back(), powers_[power]));
    factors_.push_back(power);
  }
}

void RepeatedBlock::find_path(size_t power, uint32_t first, uint32_t last,
                              std::vector<uint32_t>& path) const {
  if (power == 0) {
    path.push_back(last);
    return;
  }
  const CostMatrix& half = powers_[power - 1];
  const uint32_t middle = best_middle(half, first, half, last);
  find_path(power - 1, first, middle, path);
  find_path(power - 1, middle, last, path);
}

std::vector<std::vector<uint32_t>> RepeatedBlock::strategies(uint32_t first, uint32_t last) const {
  // Where the products of the chain meet, from its end to its start.
  std::vector<uint32_t> joints(factors_.size(), last);
  for (size_t i = factors_.size(); i-- > 1;)
    joints[i - 1] = best_middle(products_[i - 1], first, powers_[factors_[i]], joints[i]);
  std::vector<uint32_t> path{first};
  for (size_t i = 0; i < factors_.size(); ++i) find_path(factors_[i], path.back(), joints[i], path);
  std::vector<std::vector<uint32_t>> chosen;
  for (size_t copy = 0; copy + 1 < path.size(); ++copy) {
    std::vector<uint32_t> strategies(nodes_);
    strategies[in_] = path[copy];
    strategies[out_] = path[copy + 1];
    interior_->complete(strategies);
    chosen.push_back(std::move(strategies));
  }
  return chosen;
}

}  // namespace corro::plan
