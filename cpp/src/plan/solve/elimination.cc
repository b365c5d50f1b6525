#include "plan/solve/elimination.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "plan/solve/elimination_state.h"

namespace corro::plan {
namespace {

/// What rounding may do to a sum of this size.
double rounding_of(double value) { return 1e-12 * std::max(1.0, std::abs(value)); }

Status check_order(const std::vector<NodeId>& order, size_t nodes) {
  if (order.empty()) return {};
  std::vector<bool> named(nodes);
  for (const NodeId node : order) {
    if (node >= nodes || named[node])
      return {
          Code::kInvalidArgument,
          fmt::format("elimination order: node {} is named twice or is none of {}", node, nodes)};
    named[node] = true;
  }
  if (order.size() != nodes)
    return {Code::kInvalidArgument,
            fmt::format("elimination order: names {} of {} nodes", order.size(), nodes)};
  return {};
}

/// Best first: the graph that may hold the least energy is divided by a node's strategies.
class BranchAndBound {
 public:
  BranchAndBound(const EnergyGraph& graph, const EliminationOptions& options)
      : graph_(graph), options_(options) {
    edges_of_.resize(graph.nodes.size());
    for (const EnergyGraph::Edge& edge : graph.edges) {
      edges_of_[edge.first].push_back(&edge);
      edges_of_[edge.second].push_back(&edge);
    }
  }

  Optimum run(EliminationState root) {
    visit(std::move(root));
    while (!open_.empty() && best_.branches < options_.max_branches) {
      if (open_.top().bound >= best_.value - rounding_of(best_.value)) break;
      const EliminationState state = open_.top().state;
      open_.pop();
      const NodeId node = state.busiest();
      for (uint32_t strategy = 0; strategy < state.strategies_of(node); ++strategy) {
        EliminationState child = state;
        child.pin(node, strategy);
        ++best_.branches;
        visit(std::move(child));
      }
    }
    best_.bound = open_.empty() ? best_.value : std::min(best_.value, open_.top().bound);
    best_.exact = best_.bound >= best_.value - rounding_of(best_.value);
    if (best_.exact) best_.bound = best_.value;
    return std::move(best_);
  }

 private:
  struct Open {
    double bound;
    EliminationState state;
    bool operator<(const Open& other) const { return bound > other.bound; }  // Least on top.
  };

  void visit(EliminationState state) {
    // The order is for the first pass; a graph that is pinned has other sizes.
    EliminationOptions options = options_;
    if (best_.branches > 0) options.order.clear();
    do {
      state.reduce(options);
    } while (!state.finished() && state.drop_dominated());
    best_.largest_table = std::max(best_.largest_table, state.largest_table());
    if (state.finished()) return offer(state);
    EliminationState relaxed = state;
    relaxed.relax(options_.max_table);
    offer(relaxed);
    if (relaxed.constant() < best_.value) open_.push({relaxed.constant(), std::move(state)});
  }

  /// Takes the choice that this trail leads to if it is the best one so far.
  void offer(const EliminationState& finished) {
    std::vector<uint32_t> strategies(graph_.nodes.size());
    finished.complete(strategies);
    improve(strategies);
    const double value = graph_.energy(strategies);
    if (value >= best_.value && !best_.strategies.empty()) return;
    best_.value = value;
    best_.strategies = std::move(strategies);
  }

  /// Changes one node after the other while that helps.
  void improve(std::vector<uint32_t>& strategies) const {
    constexpr int kMostPasses = 20;
    bool better = true;
    for (int pass = 0; better && pass < kMostPasses; ++pass) {
      better = false;
      for (NodeId node = 0; node < strategies.size(); ++node) {
        const uint32_t before = strategies[node];
        uint32_t choice = before;
        double least = cost_around(node, strategies);
        for (strategies[node] = 0; strategies[node] < graph_.nodes[node].size();
             ++strategies[node]) {
          const double cost = cost_around(node, strategies);
          if (cost >= least) continue;
          least = cost;
          choice = strategies[node];
        }
        strategies[node] = choice;
        better = better || choice != before;
      }
    }
  }

  double cost_around(NodeId node, const std::vector<uint32_t>& strategies) const {
    double cost = graph_.nodes[node][strategies[node]];
    for (const EnergyGraph::Edge* edge : edges_of_[node])
      cost += edge->costs.at(strategies[edge->first], strategies[edge->second]);
    return cost;
  }

  const EnergyGraph& graph_;
  const EliminationOptions& options_;
  std::vector<std::vector<const EnergyGraph::Edge*>> edges_of_;
  std::priority_queue<Open> open_;
  Optimum best_;
};

}  // namespace

Result<Optimum> minimise(const EnergyGraph& graph, const EliminationOptions& options) {
  CORRO_TRY(graph.check());
  CORRO_TRY(check_order(options.order, graph.nodes.size()));
  EliminationState state(graph);
  state.reduce(options);
  if (!state.finished()) return BranchAndBound(graph, options).run(std::move(state));
  Optimum best;
  best.strategies.resize(graph.nodes.size());
  state.complete(best.strategies);
  best.value = best.bound = graph.energy(best.strategies);
  best.exact = true;
  best.largest_table = state.largest_table();
  return best;
}

}  // namespace corro::plan
