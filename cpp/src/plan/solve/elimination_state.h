// A graph under elimination: the tables that are left, and the trail that leads back from a choice
// for the nodes that are left to one for all. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/solve/cost_table.h"
#include "plan/solve/elimination.h"
#include "plan/solve/energy_graph.h"

namespace corro::plan {

/// Copies share their tables. Loop-confined.
class EliminationState {
 public:
  /// Nothing is eliminated yet. Requires graph.check().ok().
  explicit EliminationState(const EnergyGraph& graph);

  /// Eliminates nodes while their tables have no more than options.max_table entries; `kept` ones
  /// stay. Exact.
  void reduce(const EliminationOptions& options, std::span<const NodeId> kept = {});
  /// Takes away strategies that another one of the node beats whatever its neighbours do, and nodes
  /// with one strategy left. Exact. Returns whether there were any.
  bool drop_dominated();
  /// Decides a node: that part of the graph.
  void pin(NodeId node, uint32_t strategy);
  /// Eliminates what is left, where tables are too large in parts, each of which may choose another
  /// strategy of the node: constant() is then a bound from below.
  void relax(size_t max_table);

  [[nodiscard]] bool finished() const { return left_ == 0; }
  /// What the eliminated nodes add whatever is chosen for those that are left.
  [[nodiscard]] double constant() const { return constant_; }
  [[nodiscard]] size_t largest_table() const { return largest_table_; }
  /// The node with the most neighbours, the lowest of several. Requires !finished().
  [[nodiscard]] NodeId busiest() const;
  [[nodiscard]] uint32_t strategies_of(NodeId node) const { return sizes_[node]; }
  [[nodiscard]] std::span<const SharedTable> tables_of(NodeId node) const { return tables_[node]; }

  /// Completes a choice: `strategies` has one for each node, of which those of nodes that are left
  /// are read.
  void complete(std::vector<uint32_t>& strategies) const;

 private:
  /// A step back: which node was decided, and from what.
  struct Step {
    NodeId node;
    uint32_t strategies;              ///< How many there were to choose from.
    std::vector<SharedTable> tables;  ///< Choose the least sum of these; empty: see kept.
    std::vector<uint32_t> kept;       ///< Strategies by their number after a drop.
  };

  /// Entries of the node's table, or more than `most` at the first sight of it.
  [[nodiscard]] double entries_of(NodeId node, double most) const;
  void eliminate_node(NodeId node);
  void relax_node(NodeId node, size_t max_table);
  std::vector<SharedTable> take_tables(NodeId node);
  void add_table(CostTable table);
  void replace_table(const SharedTable& before, CostTable after);
  void remove_table(const SharedTable& table, NodeId but_for);
  [[nodiscard]] bool dominates(NodeId node, uint32_t better, uint32_t worse) const;
  void keep(NodeId node, std::vector<uint32_t> kept);
  [[nodiscard]] std::optional<NodeId> smallest(size_t most) const;

  std::vector<uint32_t> sizes_;                   ///< Strategies by node; 0 = eliminated.
  std::vector<std::vector<SharedTable>> tables_;  ///< By node: those that have it.
  std::vector<Step> trail_;
  double constant_ = 0;
  size_t left_ = 0;
  size_t largest_table_ = 0;
};

}  // namespace corro::plan
