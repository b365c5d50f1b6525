#include "plan/solve/repeated_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "plan/solve/transformer_graph.h"

namespace corro::plan {
namespace {

using ::testing::HasSubstr;

struct Block {
  EnergyGraph graph;
  NodeId in;
  NodeId out;
};

/// `in` costs nothing: the block before has paid for it.
Block random_block(RandomCosts& costs, uint32_t strategies) {
  Block block;
  block.in = block.graph.add_node(std::vector<double>(strategies));
  block.out = add_transformer_block(block.graph, block.in, costs);
  return block;
}

/// All copies as one graph, and where each copy's nodes are in it.
EnergyGraph explicit_chain(const Block& block, uint32_t count,
                           std::vector<std::vector<NodeId>>& nodes) {
  EnergyGraph chain;
  NodeId in = chain.add_node(block.graph.nodes[block.in]);
  for (uint32_t copy = 0; copy < count; ++copy) {
    std::vector<NodeId> here(block.graph.nodes.size());
    for (NodeId node = 0; node < here.size(); ++node)
      here[node] = node == block.in ? in : chain.add_node(block.graph.nodes[node]);
    for (const auto& [first, second, matrix] : block.graph.edges)
      chain.add_edge(here[first], here[second], matrix);
    in = here[block.out];
    nodes.push_back(std::move(here));
  }
  return chain;
}

TEST(RepeatedBlock, EqualsTheExplicitGraph) {
  RandomCosts costs(5);
  for (const uint32_t count : {1U, 2U, 3U, 7U, 12U}) {
    const Block block = random_block(costs, 4);
    const auto repeated = RepeatedBlock::create(block.graph, block.in, block.out, count);
    ASSERT_TRUE(repeated.ok()) << repeated.status().to_string();
    std::vector<std::vector<NodeId>> nodes;
    EnergyGraph chain = explicit_chain(block, count, nodes);
    const NodeId last = nodes.back()[block.out];
    const EnergyGraph free = chain;
    for (uint32_t from = 0; from < 4; ++from) {
      for (uint32_t to = 0; to < 4; ++to) {
        const auto inside = repeated->strategies(from, to);
        ASSERT_EQ(inside.size(), count);
        std::vector<uint32_t> choice(chain.nodes.size());
        for (uint32_t copy = 0; copy < count; ++copy) {
          for (NodeId node = 0; node < inside[copy].size(); ++node)
            choice[nodes[copy][node]] = inside[copy][node];
        }
        EXPECT_EQ(choice[0], from);
        EXPECT_EQ(choice[last], to);
        EXPECT_NEAR(free.energy(choice), repeated->costs().at(from, to), 1e-9);

        // Pins the ends of the explicit graph.
        chain = free;
        for (uint32_t other = 0; other < 4; ++other) {
          if (other != from) chain.nodes[0][other] = kNever;
          if (other != to) chain.nodes[last][other] = kNever;
        }
        EXPECT_NEAR(minimise(chain)->value, repeated->costs().at(from, to), 1e-9);
      }
    }
  }
}

TEST(RepeatedBlock, TakesAsLongForAMillionBlocksAsForTwenty) {
  RandomCosts costs(6);
  const Block block = random_block(costs, 3);
  const auto repeated = RepeatedBlock::create(block.graph, block.in, block.out, 1'000'000);
  ASSERT_TRUE(repeated.ok());
  const auto twenty = RepeatedBlock::create(block.graph, block.in, block.out, 20);
  EXPECT_GT(repeated->costs().at(0, 0), twenty->costs().at(0, 0) * 40'000);
}

TEST(RepeatedBlock, JoinsTheEndsThroughSeparateParts) {
  // Nothing joins in and out: the copies still add up.
  EnergyGraph block;
  const NodeId in = block.add_node({0, 1});
  const NodeId out = block.add_node({5, 3});
  block.add_node({7, 8});
  const auto repeated = RepeatedBlock::create(block, in, out, 2);
  ASSERT_TRUE(repeated.ok());
  // 0 + 7 + min(5 + 0, 3 + 1) + 7 + 5
  EXPECT_EQ(repeated->costs().at(0, 0), 23);
}

TEST(RepeatedBlock, RefusesEndsThatDoNotFit) {
  EnergyGraph block;
  block.add_node({0, 1});
  block.add_node({0, 1});
  block.add_node({0, 1, 2});
  const auto says = [&](NodeId in, NodeId out, uint32_t count) {
    const auto repeated = RepeatedBlock::create(block, in, out, count);
    EXPECT_EQ(repeated.status().code(), Code::kInvalidArgument);
    return repeated.status().message();
  };
  EXPECT_THAT(says(0, 3, 1), HasSubstr("must be two of 3 nodes"));
  EXPECT_THAT(says(1, 1, 1), HasSubstr("must be two of 3 nodes"));
  EXPECT_THAT(says(0, 2, 1), HasSubstr("different numbers of strategies"));
  EXPECT_THAT(says(0, 1, 0), HasSubstr("no copies"));
}

TEST(RepeatedBlock, SaysThatTheInteriorIsTooDense) {
  RandomCosts costs(9);
  EnergyGraph block;
  for (uint32_t i = 0; i < 6; ++i) {
    block.add_node(costs.vector(3));
    for (uint32_t j = 0; j < i; ++j) block.add_edge(i, j, costs.matrix(3, 3));
  }
  const auto repeated = RepeatedBlock::create(block, 0, 1, 4, {.max_table = 27});
  EXPECT_EQ(repeated.status().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace corro::plan
