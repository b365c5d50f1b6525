#include "plan/solve/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "plan/solve/transformer_graph.h"

namespace corro::plan {
namespace {

using ::testing::HasSubstr;

/// So many members, each of the level below (at first: devices), joined by this bandwidth.
struct Level {
  uint32_t members;
  double bandwidth;
};

/// Innermost level first; device numbers run through a level before the next.
Links hierarchy(const std::vector<Level>& levels) {
  uint32_t devices = 1;
  for (const Level& level : levels) devices *= level.members;
  std::vector<double> bandwidths(size_t{devices} * devices);
  for (uint32_t i = 0; i < devices; ++i) {
    for (uint32_t j = 0; j < devices; ++j) {
      uint32_t first = i;
      uint32_t second = j;
      for (size_t level = 0; first != second; ++level) {
        first /= levels[level].members;
        second /= levels[level].members;
        bandwidths[size_t{i} * devices + j] = levels[level].bandwidth;
      }
    }
  }
  return *Links::matrix(devices, std::move(bandwidths));
}

/// T7: 16 devices, 2 switches of 2 nodes of 4.
Links two_switches() { return hierarchy({{4, 300}, {2, 50}, {2, 12}}); }
const Axis kTensor{.size = 4, .bytes = ring_bytes(4, 8)};
const Axis kData{.size = 2, .bytes = ring_bytes(2, 4)};
const Axis kPipeline{.size = 2, .bytes = 1, .shape = GroupShape::kChain};

std::vector<uint32_t> in_order(uint32_t devices) {
  std::vector<uint32_t> order(devices);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

Links as_matrix(const Links& links, const std::vector<uint32_t>& names, double factor = 1) {
  const uint32_t devices = links.devices();
  std::vector<double> bandwidths(size_t{devices} * devices);
  for (uint32_t i = 0; i < devices; ++i) {
    for (uint32_t j = 0; j < devices; ++j) {
      if (i != j) bandwidths[size_t{names[i]} * devices + names[j]] = factor * links.between(i, j);
    }
  }
  return *Links::matrix(devices, std::move(bandwidths));
}

/// Bandwidths of a random tree whose links are slower the higher up: an ultrametric.
Links random_tree(RandomCosts& costs, uint32_t devices) {
  std::vector<double> bandwidths(size_t{devices} * devices);
  std::vector<std::vector<uint32_t>> clusters;
  for (uint32_t i = 0; i < devices; ++i) clusters.push_back({i});
  double bandwidth = 300;
  while (clusters.size() > 1) {
    if (costs.upto(2) == 0) bandwidth /= 1 + costs.next() / 3;
    const uint32_t one = costs.upto(static_cast<uint32_t>(clusters.size()));
    std::swap(clusters[one], clusters.back());
    std::vector<uint32_t> merged = clusters.back();
    clusters.pop_back();
    std::vector<uint32_t>& other = clusters[costs.upto(static_cast<uint32_t>(clusters.size()))];
    for (const uint32_t i : merged) {
      for (const uint32_t j : other)
        bandwidths[size_t{i} * devices + j] = bandwidths[size_t{j} * devices + i] = bandwidth;
    }
    other.insert(other.end(), merged.begin(), merged.end());
  }
  return *Links::matrix(devices, std::move(bandwidths));
}

double brute_force(const Links& links, const std::vector<Axis>& axes) {
  size_t ranks = 1;
  for (const Axis& axis : axes) ranks *= axis.size;
  std::vector<uint32_t> devices = in_order(links.devices());
  double least = std::numeric_limits<double>::infinity();
  do {
    least = std::min(least, placement_cost(links, axes, {devices.data(), ranks}));
  } while (std::next_permutation(devices.begin(), devices.end()));
  return least;
}

std::vector<Axis> random_axes(RandomCosts& costs, const std::vector<uint32_t>& sizes) {
  std::vector<Axis> axes;
  for (const uint32_t size : sizes) {
    axes.push_back({.size = size,
                    .bytes = costs.next(),
                    .shape = costs.upto(3) == 0 ? GroupShape::kChain : GroupShape::kRing});
  }
  std::swap(axes[0], axes[costs.upto(static_cast<uint32_t>(axes.size()))]);
  return axes;
}

void expect_is_placement(const Links& links, const std::vector<Axis>& axes, const Placement& best) {
  std::set<uint32_t> used(best.devices.begin(), best.devices.end());
  EXPECT_EQ(used.size(), best.devices.size());
  EXPECT_LT(*used.rbegin(), links.devices());
  EXPECT_EQ(best.cost, placement_cost(links, axes, best.devices));
}

TEST(Placement, CostsWhatTheSlowestLinkOfEachAxisTakes) {  // T7
  const Links links = two_switches();
  // In the order of the nodes, the axis that is named first within a node.
  EXPECT_NEAR(placement_cost(links, std::vector{kTensor, kData, kPipeline}, in_order(16)), 0.2033,
              5e-5);
  EXPECT_NEAR(placement_cost(links, std::vector{kTensor, kPipeline, kData}, in_order(16)), 0.3933,
              5e-5);
}

TEST(Placement, FindsTheBestOrderOfTheAxes) {  // T7
  for (const auto& axes : {std::vector{kTensor, kData, kPipeline},
                           {kPipeline, kData, kTensor},
                           {kData, kTensor, kPipeline}}) {
    const auto best = place(two_switches(), axes);
    ASSERT_TRUE(best.ok());
    EXPECT_NEAR(best->cost, 0.2033, 5e-5);
    expect_is_placement(two_switches(), axes, *best);
  }
}

TEST(Placement, IsBestOnHierarchiesWhoseSizesTheAxesDivide) {
  RandomCosts costs(30);
  const std::vector<std::vector<uint32_t>> members{{2, 2, 2}, {4, 2}, {2, 4}, {8}};
  for (int i = 0; i < 8; ++i) {
    std::vector<Level> levels;
    double bandwidth = 300;
    for (const uint32_t count : members[costs.upto(4)]) {
      levels.push_back({count, bandwidth});
      bandwidth /= 1 + costs.next();
    }
    const Links links = hierarchy(levels);
    const std::vector<std::vector<uint32_t>> shapes{{2, 4}, {2, 2, 2}, {8}, {4, 2}};
    const std::vector<Axis> axes = random_axes(costs, shapes[costs.upto(4)]);
    const auto best = place(links, axes, {.most_swaps = 0});
    EXPECT_NEAR(best->cost, brute_force(links, axes), 1e-9) << i;
  }
}

TEST(Placement, IsBestOnSmallTrees) {
  RandomCosts costs(31);
  for (int i = 0; i < 30; ++i) {
    const Links links = random_tree(costs, i % 2 == 0 ? 8 : 7);
    const std::vector<std::vector<uint32_t>> shapes{{2, 3}, {6}, {3, 2, 1}, {2, 2}, {7}, {5}};
    const std::vector<std::vector<uint32_t>> eight{{2, 4}, {2, 2, 2}, {8}, {2, 3}};
    const auto& sizes = i % 2 == 0 ? eight[costs.upto(4)] : shapes[costs.upto(6)];
    const std::vector<Axis> axes = random_axes(costs, sizes);
    const auto best = place(links, axes);
    ASSERT_TRUE(best.ok());
    EXPECT_NEAR(best->cost, brute_force(links, axes), 1e-9) << i;
    expect_is_placement(links, axes, *best);
  }
}

TEST(Placement, DoesNotDependOnTheNumbersOfDevices) {
  RandomCosts costs(32);
  std::mt19937_64 random(4);
  for (int i = 0; i < 8; ++i) {
    std::vector<uint32_t> names = in_order(16);
    std::shuffle(names.begin(), names.end(), random);
    const std::vector<Axis> axes = random_axes(costs, {4, 2, 2});
    const double cost = place(two_switches(), axes)->cost;
    EXPECT_NEAR(place(as_matrix(two_switches(), names), axes)->cost, cost, 1e-12);
  }
}

TEST(Placement, NeverCostsMoreOnLinksTwiceAsFast) {
  RandomCosts costs(33);
  for (int i = 0; i < 8; ++i) {
    std::vector<double> bandwidths(100);
    for (uint32_t a = 0; a < 10; ++a) {
      for (uint32_t b = 0; b < a; ++b)
        bandwidths[a * 10 + b] = bandwidths[b * 10 + a] = 1 + costs.next();
    }
    const Links links = *Links::matrix(10, bandwidths);
    const std::vector<Axis> axes = random_axes(costs, {5, 2});
    EXPECT_LE(place(as_matrix(links, in_order(10), 2), axes)->cost,
              place(links, axes)->cost / 2 + 1e-9);
  }
}

TEST(Placement, SwapsImproveWhatFillingGives) {
  RandomCosts costs(34);
  int improved = 0;
  for (int i = 0; i < 12; ++i) {
    std::vector<double> bandwidths(144);
    for (uint32_t a = 0; a < 12; ++a) {
      for (uint32_t b = 0; b < a; ++b)
        bandwidths[a * 12 + b] = bandwidths[b * 12 + a] = 1 + costs.next();
    }
    const Links links = *Links::matrix(12, bandwidths);
    const std::vector<Axis> axes = random_axes(costs, {3, 2, 2});
    const double filled = place(links, axes, {.most_swaps = 0})->cost;
    const auto best = place(links, axes);
    EXPECT_LE(best->cost, filled);
    expect_is_placement(links, axes, *best);
    improved += best->cost < filled ? 1 : 0;
  }
  EXPECT_GT(improved, 6);
}

TEST(Placement, KeepsGroupsInNodesThatTheyDoNotFill) {
  // Nodes of 6: each has room for a group of 4, and what is left makes one across nodes.
  const Links links = hierarchy({{6, 100}, {4, 1}});
  const std::vector<Axis> axes{{.size = 4, .bytes = 100}, {.size = 4, .bytes = 1}};
  const auto best = place(links, axes);
  ASSERT_TRUE(best.ok());
  EXPECT_DOUBLE_EQ(best->cost, 2);
}

TEST(Placement, PlacesOneRank) {
  const auto best = place(hierarchy({}), std::vector<Axis>{});
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(best->devices, std::vector<uint32_t>{0});
  EXPECT_EQ(best->cost, 0);
}

TEST(Placement, RefusesWhatDoesNotFit) {
  const auto says = [](const std::vector<Axis>& axes) {
    const auto best = place(two_switches(), axes);
    EXPECT_EQ(best.status().code(), Code::kInvalidArgument);
    return best.status().message();
  };
  EXPECT_THAT(says({{.size = 4, .bytes = 1}, {.size = 5, .bytes = 1}}),
              HasSubstr("20 or more ranks for 16 devices"));
  EXPECT_THAT(says({{.size = 0, .bytes = 1}}), HasSubstr("axis 0 has size 0"));
  EXPECT_THAT(says({{.size = 1, .bytes = -1}}), HasSubstr("-1 bytes"));
  EXPECT_THAT(says(std::vector<Axis>(7, {.size = 1, .bytes = 1})), HasSubstr("at most 6"));
}

TEST(Links, RefuseWhatIsNoBandwidth) {
  EXPECT_THAT(Links::matrix(2, {0, 1, 2, 0}).status().message(), HasSubstr("devices 1 and 0"));
  EXPECT_THAT(Links::matrix(2, {0, -1, -1, 0}).status().message(), HasSubstr("positive"));
  EXPECT_THAT(Links::matrix(2, {0, 1, 1}).status().message(), HasSubstr("3 bandwidths"));
  EXPECT_THAT(Links::matrix(0, {}).status().message(), HasSubstr("no devices"));
}

}  // namespace
}  // namespace corro::plan
