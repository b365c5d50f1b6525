#include "plan/solve/cost_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace corro::plan {
namespace {

size_t cells_of(const std::vector<uint32_t>& sizes) {
  size_t cells = 1;
  for (const uint32_t size : sizes) cells *= size;
  return cells;
}

/// A table as the kernel reads it. `cells` points to the costs where all outer nodes take their
/// first strategy.
struct Operand {
  const double* cells;
  size_t node_stride;                 ///< Of the node that is eliminated.
  std::vector<size_t> outer_strides;  ///< Of the neighbours but the last.
  size_t offset = 0;                  ///< Of the present strategies of the outer nodes.
};

/// Steps through all strategies of the outer nodes and keeps the operands' offsets.
class OuterLoop {
 public:
  OuterLoop(std::span<const uint32_t> sizes, std::vector<Operand>& all) : sizes_(sizes), all_(all) {
    at_.resize(sizes.size());
  }
  /// False once all are done.
  bool next() {
    for (size_t i = sizes_.size(); i-- > 0;) {
      if (++at_[i] < sizes_[i]) {
        for (Operand& operand : all_) operand.offset += operand.outer_strides[i];
        return true;
      }
      for (Operand& operand : all_) operand.offset -= operand.outer_strides[i] * (at_[i] - 1);
      at_[i] = 0;
    }
    return false;
  }

 private:
  std::span<const uint32_t> sizes_;
  std::vector<Operand>& all_;
  std::vector<uint32_t> at_;
};

/// The table's cells with its last two nodes exchanged.
std::vector<double> exchange_last_two(const CostTable& table) {
  const size_t columns = table.sizes.back();
  const size_t rows = table.sizes[table.sizes.size() - 2];
  std::vector<double> cells(table.cells.size());
  for (size_t base = 0; base < cells.size(); base += rows * columns) {
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j)
        cells[base + j * rows + i] = table.cells[base + i * columns + j];
    }
  }
  return cells;
}

/// Lays the tables out so that the last neighbour's strategies lie side by side: one row of costs
/// is then added at a time, which compilers vectorise.
class Elimination {
 public:
  Elimination(NodeId node, uint32_t strategies, std::span<const SharedTable> tables)
      : node_(node), strategies_(strategies), result_(neighbours_of(node, tables)) {
    result_.cells.assign(cells_of(result_.sizes), kNever);
    exchanged_.reserve(tables.size());
    for (const SharedTable& table : tables) add_operand(*table);
    const auto split = std::partition(operands_.begin(), operands_.end(),
                                      [](const auto& operand) { return !operand.second; });
    split_ = static_cast<size_t>(split - operands_.begin());
    for (auto& [operand, has_last] : operands_) all_.push_back(std::move(operand));
  }

  CostTable run() {
    const size_t columns = result_.sizes.empty() ? 1 : result_.sizes.back();
    std::span<const uint32_t> outer(result_.sizes);
    if (!outer.empty()) outer = outer.first(outer.size() - 1);
    OuterLoop loop(outer, all_);
    std::vector<double> sums(columns);
    double* out = result_.cells.data();
    do {
      for (uint32_t strategy = 0; strategy < strategies_; ++strategy) {
        add_row(strategy, sums);
        for (size_t i = 0; i < columns; ++i) out[i] = sums[i] < out[i] ? sums[i] : out[i];
      }
      out += columns;
    } while (loop.next());
    return std::move(result_);
  }

 private:
  void add_operand(const CostTable& table) {
    const bool has_last = !result_.nodes.empty() && table.has(result_.nodes.back());
    Operand operand{
        .cells = table.cells.data(), .node_stride = table.stride_of(node_), .outer_strides = {}};
    if (has_last && table.nodes.back() == node_) {
      exchanged_.push_back(exchange_last_two(table));
      operand.cells = exchanged_.back().data();
      operand.node_stride = result_.sizes.back();
    }
    for (size_t i = 0; i + 1 < result_.nodes.size(); ++i)
      operand.outer_strides.push_back(table.stride_of(result_.nodes[i]));
    operands_.emplace_back(std::move(operand), has_last);
  }

  void add_row(uint32_t strategy, std::vector<double>& sums) const {
    double base = 0;
    for (size_t i = 0; i < split_; ++i)
      base += all_[i].cells[all_[i].offset + strategy * all_[i].node_stride];
    std::fill(sums.begin(), sums.end(), base);
    for (size_t i = split_; i < all_.size(); ++i) {
      const double* row = all_[i].cells + all_[i].offset + strategy * all_[i].node_stride;
      for (size_t j = 0; j < sums.size(); ++j) sums[j] += row[j];
    }
  }

  NodeId node_;
  uint32_t strategies_;
  CostTable result_;
  std::vector<std::vector<double>> exchanged_;
  std::vector<std::pair<Operand, bool>> operands_;
  std::vector<Operand> all_;  ///< First those without the last neighbour.
  size_t split_ = 0;
};

}  // namespace

bool CostTable::has(NodeId node) const {
  return std::binary_search(nodes.begin(), nodes.end(), node);
}

size_t CostTable::stride_of(NodeId node) const {
  size_t stride = 1;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (nodes[i] == node) return stride;
    stride *= sizes[i];
  }
  return 0;
}

double CostTable::cost_of(std::span<const uint32_t> strategies) const {
  size_t cell = 0;
  for (size_t i = 0; i < nodes.size(); ++i) cell = cell * sizes[i] + strategies[nodes[i]];
  return cells[cell];
}

CostTable neighbours_of(NodeId node, std::span<const SharedTable> tables) {
  std::vector<std::pair<NodeId, uint32_t>> found;
  for (const SharedTable& table : tables) {
    for (size_t i = 0; i < table->nodes.size(); ++i) {
      if (table->nodes[i] != node) found.emplace_back(table->nodes[i], table->sizes[i]);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  CostTable result;
  for (const auto& [neighbour, size] : found) {
    result.nodes.push_back(neighbour);
    result.sizes.push_back(size);
  }
  return result;
}

CostTable eliminate(NodeId node, uint32_t strategies, std::span<const SharedTable> tables) {
  return Elimination(node, strategies, tables).run();
}

CostTable keep_strategies(const CostTable& table, NodeId node, std::span<const uint32_t> kept) {
  const size_t stride = table.stride_of(node);
  CORRO_CHECK(stride > 0, node);
  const auto place = static_cast<size_t>(
      std::lower_bound(table.nodes.begin(), table.nodes.end(), node) - table.nodes.begin());
  const size_t whole = stride * table.sizes[place];
  CostTable result{.nodes = table.nodes, .sizes = table.sizes, .cells = {}};
  result.sizes[place] = static_cast<uint32_t>(kept.size());
  result.cells.reserve(cells_of(result.sizes));
  for (size_t base = 0; base < table.cells.size(); base += whole) {
    for (const uint32_t strategy : kept) {
      const double* from = table.cells.data() + base + strategy * stride;
      result.cells.insert(result.cells.end(), from, from + stride);
    }
  }
  return result;
}

CostTable pin_strategy(const CostTable& table, NodeId node, uint32_t strategy) {
  CostTable result = keep_strategies(table, node, {&strategy, 1});
  const auto place =
      std::lower_bound(result.nodes.begin(), result.nodes.end(), node) - result.nodes.begin();
  result.nodes.erase(result.nodes.begin() + place);
  result.sizes.erase(result.sizes.begin() + place);
  return result;
}

}  // namespace corro::plan
