// The oracle: the same choice as an integer program, solved by Debian's cbc (coinor-cbc).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "plan/solve/elimination.h"
#include "plan/solve/transformer_graph.h"

namespace corro::plan {
namespace {

namespace fs = std::filesystem;

bool has_cbc() { return std::system("command -v cbc > /dev/null 2>&1") == 0; }

/// x: one 0/1 variable for each strategy of a node; y: for each cell of an edge's matrix, whose
/// sums over a row and over a column are the x of its ends.
void write_program(const EnergyGraph& graph, std::ostream& out) {
  out << "Minimize\nobj:";
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    for (size_t s = 0; s < graph.nodes[node].size(); ++s)
      out << fmt::format(" + {} x{}_{}\n", graph.nodes[node][s], node, s);
  }
  for (size_t edge = 0; edge < graph.edges.size(); ++edge) {
    const CostMatrix& costs = graph.edges[edge].costs;
    for (size_t a = 0; a < costs.rows; ++a) {
      for (size_t b = 0; b < costs.columns; ++b)
        out << fmt::format(" + {} y{}_{}_{}\n", costs.at(a, b), edge, a, b);
    }
  }
  out << "Subject To\n";
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    for (size_t s = 0; s < graph.nodes[node].size(); ++s) out << fmt::format(" + x{}_{}", node, s);
    out << " = 1\n";
  }
  for (size_t edge = 0; edge < graph.edges.size(); ++edge) {
    const auto& [first, second, costs] = graph.edges[edge];
    for (size_t a = 0; a < costs.rows; ++a) {
      for (size_t b = 0; b < costs.columns; ++b) out << fmt::format(" + y{}_{}_{}", edge, a, b);
      out << fmt::format(" - x{}_{} = 0\n", first, a);
    }
    for (size_t b = 0; b < costs.columns; ++b) {
      for (size_t a = 0; a < costs.rows; ++a) out << fmt::format(" + y{}_{}_{}", edge, a, b);
      out << fmt::format(" - x{}_{} = 0\n", second, b);
    }
  }
  out << "Binary\n";
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    for (size_t s = 0; s < graph.nodes[node].size(); ++s) out << fmt::format(" x{}_{}\n", node, s);
  }
  out << "End\n";
}

/// "Optimal - objective value 212.5" is the first line of a solution.
double solve_by_cbc(const EnergyGraph& graph) {
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("corro_cbc_{}", ::getpid());
  fs::create_directories(folder);
  const std::string program = (folder / "graph.lp").string();
  const std::string solution = (folder / "solution.txt").string();
  {
    std::ofstream out(program);
    write_program(graph, out);
  }
  const std::string command = fmt::format(
      "cbc '{}' ratioGap 0 allowableGap 0 solve solution '{}' > /dev/null 2>&1", program, solution);
  const int failed = std::system(command.c_str());
  std::ifstream in(solution);
  std::string line;
  std::getline(in, line);
  double value = 0;
  const bool read = std::sscanf(line.c_str(), "Optimal - objective value %lf", &value) == 1;
  EXPECT_TRUE(failed == 0 && read) << line;
  fs::remove_all(folder);
  return value;
}

class IntegerProgram : public ::testing::TestWithParam<TransformerGraph> {};

TEST_P(IntegerProgram, HasTheSameOptimum) {  // T8
  if (!has_cbc()) GTEST_SKIP() << "cbc is not installed (Debian: coinor-cbc)";
  const EnergyGraph graph = make_transformer_graph(GetParam());
  const auto best = minimise(graph);
  ASSERT_TRUE(best.ok());
  EXPECT_TRUE(best->exact);
  EXPECT_NEAR(solve_by_cbc(graph), best->value, 1e-6 * best->value);
}

INSTANTIATE_TEST_SUITE_P(
    Transformers, IntegerProgram,
    ::testing::Values(TransformerGraph{.blocks = 4, .strategies = 8, .seed = 1},
                      TransformerGraph{.blocks = 4, .strategies = 5, .seed = 2},
                      TransformerGraph{.blocks = 24, .strategies = 8, .seed = 3}));

}  // namespace
}  // namespace corro::plan
