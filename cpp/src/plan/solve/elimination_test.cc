#include "plan/solve/elimination.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "plan/solve/transformer_graph.h"

namespace corro::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Optimum solve(const EnergyGraph& graph, const EliminationOptions& options = {}) {
  auto best = minimise(graph, options);
  EXPECT_TRUE(best.ok()) << best.status().to_string();
  return *best;
}

/// Calls visit(strategies) for every choice.
template <typename Visit>
void each_choice(const EnergyGraph& graph, Visit&& visit) {
  std::vector<uint32_t> choice(graph.nodes.size());
  while (true) {
    visit(choice);
    size_t node = 0;
    while (node < choice.size() && ++choice[node] == graph.nodes[node].size()) choice[node++] = 0;
    if (node == choice.size()) return;
  }
}

double brute_force(const EnergyGraph& graph) {
  double least = kNever;
  each_choice(graph, [&](const auto& choice) { least = std::min(least, graph.energy(choice)); });
  return least;
}

/// Nodes with 1 to 3 strategies; edges, some parallel, by chance; some costs infinite or negative.
EnergyGraph random_graph(RandomCosts& costs, uint32_t nodes, uint32_t edges, uint32_t never) {
  EnergyGraph graph;
  const auto cost = [&] { return costs.upto(100) < never ? kNever : costs.next() - 2; };
  for (uint32_t i = 0; i < nodes; ++i) {
    std::vector<double> own(1 + costs.upto(3));
    for (double& one : own) one = cost();
    graph.add_node(std::move(own));
  }
  for (uint32_t i = 0; nodes > 1 && i < edges; ++i) {
    const NodeId first = costs.upto(nodes);
    const NodeId second = (first + 1 + costs.upto(nodes - 1)) % nodes;
    CostMatrix matrix(graph.nodes[first].size(), graph.nodes[second].size());
    for (double& one : matrix.cells) one = cost();
    graph.add_edge(first, second, std::move(matrix));
  }
  return graph;
}

/// Every node joined with every other one.
EnergyGraph complete_graph(RandomCosts& costs, uint32_t nodes, uint32_t strategies) {
  EnergyGraph graph;
  for (uint32_t i = 0; i < nodes; ++i) {
    graph.add_node(costs.vector(strategies));
    for (uint32_t j = 0; j < i; ++j) graph.add_edge(i, j, costs.matrix(strategies, strategies));
  }
  return graph;
}

TEST(Elimination, ChoosesLayoutsAlongAChain) {  // T1
  EnergyGraph graph;
  const NodeId a = graph.add_node({4, 6});
  const NodeId b = graph.add_node({9, 3});
  const NodeId c = graph.add_node({5, 5});
  const CostMatrix change(2, 2, {0, 2, 2, 0});
  graph.add_edge(a, b, change);
  graph.add_edge(b, c, change);
  const Optimum best = solve(graph);
  EXPECT_EQ(best.value, 14);
  EXPECT_EQ(best.bound, 14);
  EXPECT_TRUE(best.exact);
  // (1, 1, 1) costs 14 as well.
  EXPECT_EQ(graph.energy(best.strategies), 14);
  EXPECT_EQ(graph.energy(std::vector<uint32_t>{0, 1, 1}), 14);
}

/// T2: x -> f -> g -> add and x -> add, with layouts replicated, split by 0, split by 1.
EnergyGraph residual_block() {
  EnergyGraph graph;
  const NodeId x = graph.add_node({1, 1, 1});
  const NodeId f = graph.add_node({8, 4, 5});
  const NodeId g = graph.add_node({8, 6, 4});
  const NodeId add = graph.add_node({2, 1, 1});
  const CostMatrix change(3, 3, {0, 0, 0, 3, 0, 2, 3, 2, 0});
  graph.add_edge(x, f, change);
  graph.add_edge(f, g, change);
  graph.add_edge(g, add, change);
  graph.add_edge(x, add, change);
  return graph;
}

TEST(Elimination, ChoosesLayoutsOfAResidualBlock) {  // T2
  EnergyGraph graph = residual_block();
  EXPECT_EQ(solve(graph).value, 11);
  std::vector<std::vector<uint32_t>> optima;
  each_choice(graph, [&](const auto& choice) {
    if (graph.energy(choice) == 11) optima.push_back(choice);
  });
  EXPECT_THAT(optima, ElementsAre(ElementsAre(0, 2, 2, 2), ElementsAre(2, 2, 2, 2)));
  EXPECT_THAT(optima, ::testing::Contains(solve(graph).strategies));

  graph.nodes[0] = {1, kNever, kNever};
  graph.nodes[3] = {2, kNever, kNever};
  EXPECT_EQ(solve(graph).value, 15);
  EXPECT_THAT(solve(graph).strategies, ElementsAre(0, 2, 2, 0));
}

TEST(Elimination, EqualsBruteForceOnSmallGraphs) {
  RandomCosts costs(7);
  for (int i = 0; i < 500; ++i) {
    const EnergyGraph graph =
        random_graph(costs, 1 + costs.upto(8), costs.upto(16), i % 3 == 0 ? 15 : 0);
    const Optimum best = solve(graph);
    const double least = brute_force(graph);
    EXPECT_TRUE(best.exact);
    EXPECT_EQ(best.value, graph.energy(best.strategies));
    if (least == kNever) {
      EXPECT_EQ(best.value, kNever);
    } else {
      EXPECT_NEAR(best.value, least, 1e-9) << i;
    }
  }
}

TEST(Elimination, GivesTheSameValueInAnyOrder) {
  RandomCosts costs(11);
  std::mt19937_64 random(3);
  for (int i = 0; i < 40; ++i) {
    const EnergyGraph graph = random_graph(costs, 10, 18, 0);
    const double value = solve(graph).value;
    EliminationOptions options;
    options.order.resize(graph.nodes.size());
    std::iota(options.order.begin(), options.order.end(), 0U);
    for (int order = 0; order < 10; ++order) {
      std::shuffle(options.order.begin(), options.order.end(), random);
      EXPECT_NEAR(solve(graph, options).value, value, 1e-9);
    }
  }
}

TEST(Elimination, NeverCostsMoreWithOneStrategyMore) {
  RandomCosts costs(13);
  for (int i = 0; i < 100; ++i) {
    EnergyGraph graph = random_graph(costs, 6, 9, 10);
    const double before = solve(graph).value;
    const NodeId node = costs.upto(6);
    graph.nodes[node].push_back(costs.next() - 2);
    for (EnergyGraph::Edge& edge : graph.edges) {
      const CostMatrix old = edge.costs;
      const size_t more_rows = edge.first == node ? 1 : 0;
      const size_t more_columns = edge.second == node ? 1 : 0;
      edge.costs = CostMatrix(old.rows + more_rows, old.columns + more_columns, costs.next());
      for (size_t row = 0; row < old.rows; ++row) {
        for (size_t column = 0; column < old.columns; ++column)
          edge.costs.at(row, column) = old.at(row, column);
      }
    }
    EXPECT_LE(solve(graph).value, before + 1e-9);
  }
}

TEST(Elimination, BoundsWhatDoesNotFitInTheTables) {
  RandomCosts costs(17);
  int exact = 0;
  for (int i = 0; i < 30; ++i) {
    const EnergyGraph graph = complete_graph(costs, 7, 3);
    const double least = brute_force(graph);
    for (const uint32_t branches : {0U, 5U, 1000U}) {
      const Optimum best = solve(graph, {.max_table = 27, .max_branches = branches});
      EXPECT_LE(best.bound, least + 1e-9);
      EXPECT_GE(best.value, least - 1e-9);
      EXPECT_LE(best.largest_table, 27U);
      EXPECT_EQ(best.value, graph.energy(best.strategies));
      EXPECT_EQ(best.exact, best.bound == best.value);
      if (branches == 1000) {
        EXPECT_TRUE(best.exact);
        EXPECT_NEAR(best.value, least, 1e-9);
        EXPECT_GT(best.branches, 0U);
      }
      if (branches == 0) exact += best.exact ? 1 : 0;
    }
  }
  EXPECT_LT(exact, 30);  // Otherwise nothing was bounded.
}

TEST(Elimination, DropsDominatedStrategiesBeforeItBranches) {
  // Each node's second strategy costs more whatever the others do: no branch is needed.
  RandomCosts costs(19);
  EnergyGraph graph;
  for (uint32_t i = 0; i < 30; ++i) {
    graph.add_node({1, 1000});
    for (uint32_t j = 0; j < i; ++j) graph.add_edge(j, i, costs.matrix(2, 2));
  }
  const Optimum best = solve(graph, {.max_table = 64});
  EXPECT_TRUE(best.exact);
  EXPECT_EQ(best.branches, 0U);
  EXPECT_EQ(best.strategies, std::vector<uint32_t>(30, 0));
}

TEST(Elimination, SaysThatNothingCanBe) {
  EnergyGraph graph;
  graph.add_node({1, 2});
  graph.add_node({1, 2});
  graph.add_edge(0, 1, CostMatrix(2, 2, kNever));
  const Optimum best = solve(graph);
  EXPECT_EQ(best.value, kNever);
  EXPECT_EQ(best.bound, kNever);
  EXPECT_EQ(best.strategies.size(), 2U);
}

TEST(Elimination, SolvesTheEmptyGraph) {
  EXPECT_EQ(solve({}).value, 0);
  EXPECT_TRUE(solve({}).exact);
}

TEST(Elimination, NeedsTablesOfThreeNodesForATransformer) {
  const EnergyGraph graph = make_transformer_graph({.blocks = 96, .strategies = 8});
  EXPECT_EQ(graph.nodes.size(), 1345U);
  EXPECT_EQ(graph.edges.size(), 1728U);
  const Optimum best = solve(graph);
  EXPECT_TRUE(best.exact);
  EXPECT_EQ(best.branches, 0U);
  EXPECT_LE(best.largest_table, 8U * 8 * 8);
}

TEST(Elimination, SolvesAStarOfManyLeaves) {
  RandomCosts costs(23);
  EnergyGraph graph;
  const NodeId hub = graph.add_node(costs.vector(4));
  for (int i = 0; i < 2000; ++i) {
    const NodeId leaf = graph.add_node(costs.vector(4));
    graph.add_edge(leaf, hub, costs.matrix(4, 4));
  }
  EXPECT_LE(solve(graph).largest_table, 16U);
}

TEST(Elimination, RefusesWhatIsNoGraph) {
  const auto says = [](auto change) {
    EnergyGraph graph;
    graph.add_node({1, 2});
    graph.add_node({1, 2, 3});
    graph.add_edge(0, 1, CostMatrix(2, 3));
    change(graph);
    const auto best = minimise(graph);
    EXPECT_EQ(best.status().code(), Code::kInvalidArgument);
    return best.status().message();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(says([](auto& g) { g.add_node({}); }), HasSubstr("node 2: has no strategies"));
  EXPECT_THAT(says([&](auto& g) { g.nodes[1][2] = nan; }),
              HasSubstr("node 1: a cost is no number"));
  EXPECT_THAT(says([](auto& g) { g.nodes[1][2] = -kNever; }), HasSubstr("node 1"));
  EXPECT_THAT(says([&](auto& g) { g.edges[0].costs.cells[5] = nan; }), HasSubstr("edge 0"));
  EXPECT_THAT(says([](auto& g) { g.edges[0].second = 9; }), HasSubstr("joins nodes 0 and 9 of 2"));
  EXPECT_THAT(says([](auto& g) { g.edges[0].second = 0; }), HasSubstr("with itself"));
  EXPECT_THAT(says([](auto& g) { g.add_edge(1, 0, CostMatrix(2, 3)); }),
              HasSubstr("edge 1: is 2 x 3, its ends have 3 and 2"));
}

TEST(Elimination, RefusesAnOrderOfOtherNodes) {
  EnergyGraph graph;
  graph.add_node({1});
  graph.add_node({1});
  for (const std::vector<NodeId>& order : {std::vector<NodeId>{0}, {0, 0}, {0, 2}}) {
    EXPECT_EQ(minimise(graph, {.order = order}).status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace corro::plan
