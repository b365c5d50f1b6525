#include "plan/solve/elimination_state.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace corro::plan {
namespace {

/// Adds the second table to the first, which has the same nodes.
CostTable sum_of(const CostTable& one, const CostTable& other) {
  CostTable sum = one;
  for (size_t i = 0; i < sum.cells.size(); ++i) sum.cells[i] += other.cells[i];
  return sum;
}

CostTable table_of(const EnergyGraph::Edge& edge) {
  const auto rows = static_cast<uint32_t>(edge.costs.rows);
  const auto columns = static_cast<uint32_t>(edge.costs.columns);
  if (edge.first < edge.second)
    return {
        .nodes = {edge.first, edge.second}, .sizes = {rows, columns}, .cells = edge.costs.cells};
  CostTable table{.nodes = {edge.second, edge.first}, .sizes = {columns, rows}, .cells = {}};
  table.cells.reserve(edge.costs.cells.size());
  for (size_t column = 0; column < columns; ++column) {
    for (size_t row = 0; row < rows; ++row) table.cells.push_back(edge.costs.at(row, column));
  }
  return table;
}

/// By how much `better` may cost more than `worse` in this table, whatever the other nodes do.
double greatest_excess(const CostTable& table, NodeId node, uint32_t better, uint32_t worse) {
  const size_t stride = table.stride_of(node);
  const size_t place = static_cast<size_t>(
      std::lower_bound(table.nodes.begin(), table.nodes.end(), node) - table.nodes.begin());
  const size_t whole = stride * table.sizes[place];
  double excess = -kNever;
  for (size_t base = 0; base < table.cells.size(); base += whole) {
    for (size_t i = base; i < base + stride; ++i) {
      const double cost = table.cells[i + worse * stride];
      if (cost < kNever) excess = std::max(excess, table.cells[i + better * stride] - cost);
    }
  }
  return excess;
}

}  // namespace

EliminationState::EliminationState(const EnergyGraph& graph)
    : tables_(graph.nodes.size()), left_(graph.nodes.size()) {
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    sizes_.push_back(static_cast<uint32_t>(graph.nodes[node].size()));
    add_table({.nodes = {node}, .sizes = {sizes_.back()}, .cells = graph.nodes[node]});
  }
  for (const EnergyGraph::Edge& edge : graph.edges) add_table(table_of(edge));
}

double EliminationState::entries_of(NodeId node, double most) const {
  double entries = sizes_[node];
  std::vector<NodeId> seen;
  for (const SharedTable& table : tables_[node]) {
    for (size_t i = 0; i < table->nodes.size(); ++i) {
      const NodeId other = table->nodes[i];
      if (other == node || std::ranges::find(seen, other) != seen.end()) continue;
      seen.push_back(other);
      entries *= table->sizes[i];
      // A node with very many neighbours is not looked at in full each time one of them goes.
      if (entries > most && seen.size() > 64) return entries;
    }
  }
  return entries;
}

void EliminationState::reduce(const EliminationOptions& options, std::span<const NodeId> kept) {
  const auto most = static_cast<double>(options.max_table);
  const auto stays = [&](NodeId node) {
    return sizes_[node] == 0 || std::ranges::find(kept, node) != kept.end();
  };
  if (!options.order.empty()) {
    for (const NodeId node : options.order) {
      if (!stays(node) && entries_of(node, most) <= most) eliminate_node(node);
    }
  }
  std::vector<double> entries(sizes_.size());
  std::set<std::pair<double, NodeId>> queue;
  for (NodeId node = 0; node < sizes_.size(); ++node) {
    if (stays(node)) continue;
    entries[node] = entries_of(node, most);
    queue.emplace(entries[node], node);
  }
  while (!queue.empty() && queue.begin()->first <= most) {
    const NodeId node = queue.begin()->second;
    queue.erase(queue.begin());
    const std::vector<NodeId> neighbours = neighbours_of(node, tables_[node]).nodes;
    eliminate_node(node);
    for (const NodeId neighbour : neighbours) {
      if (queue.erase({entries[neighbour], neighbour}) == 0) continue;
      entries[neighbour] = entries_of(neighbour, most);
      queue.emplace(entries[neighbour], neighbour);
    }
  }
}

void EliminationState::eliminate_node(NodeId node) {
  const uint32_t strategies = sizes_[node];
  std::vector<SharedTable> tables = take_tables(node);
  CostTable rest = eliminate(node, strategies, tables);
  largest_table_ = std::max(largest_table_, rest.cells.size() * strategies);
  trail_.push_back(
      {.node = node, .strategies = strategies, .tables = std::move(tables), .kept = {}});
  sizes_[node] = 0;
  --left_;
  add_table(std::move(rest));
}

void EliminationState::relax(size_t max_table) {
  while (const auto node = smallest(std::numeric_limits<size_t>::max()))
    relax_node(*node, max_table);
}

void EliminationState::relax_node(NodeId node, size_t max_table) {
  const uint32_t strategies = sizes_[node];
  std::vector<SharedTable> tables = take_tables(node);
  std::ranges::stable_sort(
      tables, [](const auto& a, const auto& b) { return a->cells.size() > b->cells.size(); });
  std::vector<std::vector<SharedTable>> parts;
  for (const SharedTable& table : tables) {
    bool found = false;
    for (std::vector<SharedTable>& part : parts) {
      part.push_back(table);
      double entries = strategies;
      for (const uint32_t size : neighbours_of(node, part).sizes) entries *= size;
      found = entries <= static_cast<double>(std::max(max_table, tables.front()->cells.size()));
      if (found) break;
      part.pop_back();
    }
    if (!found) parts.push_back({table});
  }
  sizes_[node] = 0;
  --left_;
  for (const auto& part : parts) add_table(eliminate(node, strategies, part));
  trail_.push_back(
      {.node = node, .strategies = strategies, .tables = std::move(tables), .kept = {}});
}

std::optional<NodeId> EliminationState::smallest(size_t most) const {
  std::optional<NodeId> found;
  double least = static_cast<double>(most);
  for (NodeId node = 0; node < sizes_.size(); ++node) {
    if (sizes_[node] == 0) continue;
    const double entries = entries_of(node, least);
    if (found && entries >= least) continue;
    least = entries;
    found = node;
  }
  return found;
}

void EliminationState::pin(NodeId node, uint32_t strategy) {
  for (const SharedTable& table : take_tables(node))
    add_table(pin_strategy(*table, node, strategy));
  trail_.push_back({.node = node, .strategies = 1, .tables = {}, .kept = {strategy}});
  sizes_[node] = 0;
  --left_;
}

bool EliminationState::drop_dominated() {
  bool dropped = false;
  for (NodeId node = 0; node < sizes_.size(); ++node) {
    if (sizes_[node] < 2) continue;
    std::vector<uint32_t> kept(sizes_[node]);
    std::iota(kept.begin(), kept.end(), 0U);
    for (uint32_t worse = sizes_[node]; worse-- > 0;) {
      if (std::ranges::any_of(kept, [&](uint32_t better) {
            return better != worse && dominates(node, better, worse);
          }))
        std::erase(kept, worse);
    }
    if (kept.size() == sizes_[node]) continue;
    dropped = true;
    if (kept.size() == 1) {
      pin(node, kept.front());
    } else {
      keep(node, std::move(kept));
    }
  }
  return dropped;
}

bool EliminationState::dominates(NodeId node, uint32_t better, uint32_t worse) const {
  double excess = 0;
  bool unbounded = false;
  for (const SharedTable& table : tables_[node]) {
    const double here = greatest_excess(*table, node, better, worse);
    if (here == -kNever) return true;  // `worse` can never be.
    unbounded = unbounded || here == kNever;
    excess += here;
  }
  return !unbounded && excess <= 0;
}

void EliminationState::keep(NodeId node, std::vector<uint32_t> kept) {
  const std::vector<SharedTable> before = tables_[node];
  sizes_[node] = static_cast<uint32_t>(kept.size());
  for (const SharedTable& table : before) replace_table(table, keep_strategies(*table, node, kept));
  trail_.push_back(
      {.node = node, .strategies = sizes_[node], .tables = {}, .kept = std::move(kept)});
}

NodeId EliminationState::busiest() const {
  NodeId found = 0;
  size_t most = 0;
  bool any = false;
  for (NodeId node = 0; node < sizes_.size(); ++node) {
    if (sizes_[node] == 0) continue;
    const size_t neighbours = neighbours_of(node, tables_[node]).nodes.size();
    if (any && neighbours <= most) continue;
    any = true;
    most = neighbours;
    found = node;
  }
  return found;
}

void EliminationState::complete(std::vector<uint32_t>& strategies) const {
  for (size_t i = trail_.size(); i-- > 0;) {
    const Step& step = trail_[i];
    if (step.tables.empty()) {
      const uint32_t number = step.kept.size() == 1 ? 0 : strategies[step.node];
      strategies[step.node] = step.kept[number];
      continue;
    }
    double least = kNever;
    uint32_t choice = 0;
    for (uint32_t strategy = 0; strategy < step.strategies; ++strategy) {
      strategies[step.node] = strategy;
      double cost = 0;
      for (const SharedTable& table : step.tables) cost += table->cost_of(strategies);
      if (cost < least) {
        least = cost;
        choice = strategy;
      }
    }
    strategies[step.node] = choice;
  }
}

std::vector<SharedTable> EliminationState::take_tables(NodeId node) {
  std::vector<SharedTable> tables = std::move(tables_[node]);
  tables_[node].clear();
  for (const SharedTable& table : tables) remove_table(table, node);
  return tables;
}

void EliminationState::remove_table(const SharedTable& table, NodeId but_for) {
  for (const NodeId node : table->nodes) {
    if (node != but_for) std::erase(tables_[node], table);
  }
}

void EliminationState::replace_table(const SharedTable& before, CostTable after) {
  const auto shared = std::make_shared<const CostTable>(std::move(after));
  for (const NodeId node : before->nodes) std::ranges::replace(tables_[node], before, shared);
}

void EliminationState::add_table(CostTable table) {
  if (table.nodes.empty()) {
    constant_ += table.cells.front();
    return;
  }
  const NodeId quietest = *std::ranges::min_element(
      table.nodes, {}, [this](NodeId node) { return tables_[node].size(); });
  for (const SharedTable& there : tables_[quietest]) {
    if (there->nodes != table.nodes) continue;
    replace_table(SharedTable(there), sum_of(*there, table));
    return;
  }
  const auto shared = std::make_shared<const CostTable>(std::move(table));
  for (const NodeId node : shared->nodes) tables_[node].push_back(shared);
}

}  // namespace corro::plan
