#include "plan/solve/convex_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/solve/transformer_graph.h"

namespace corro::plan {
namespace {

constexpr double kNothing = std::numeric_limits<double>::infinity();

/// A convex bound, with nothing at first, and values at most `gap` above it.
struct Instance {
  std::vector<double> lower;
  std::vector<double> value;

  Instance(RandomCosts& costs, uint32_t count, double gap) {
    const uint32_t missing = costs.upto(3) == 0 ? costs.upto(count + 1) : 0;
    double slope = -costs.next() * costs.upto(4);
    double at = 1000;
    for (uint32_t k = 0; k < count; ++k) {
      const bool there = k >= missing;
      lower.push_back(there ? at : kNothing);
      value.push_back(there ? at + gap * costs.next() / 10 : kNothing);
      at += slope;
      slope += costs.upto(3) == 0 ? costs.next() : 0;
    }
  }
};

TEST(ConvexSearch, FindsWhatCountingUpFinds) {
  RandomCosts costs(31);
  int below_cut = 0;
  for (int i = 0; i < 2000; ++i) {
    const uint32_t count = 1 + costs.upto(40);
    const Instance instance(costs, count, costs.next());
    const double cut = i % 2 == 0 ? kNothing : 950 + 10 * costs.next();
    const auto found = least_above_convex(
        0, count - 1, cut, [&](uint32_t k) { return instance.lower[k]; },
        [&](uint32_t k) { return instance.value[k]; });
    const double least = std::min(cut, *std::ranges::min_element(instance.value));
    EXPECT_EQ(found.value, least) << i;
    EXPECT_EQ(found.bound, *std::ranges::min_element(instance.lower)) << i;
    EXPECT_EQ(found.at.has_value(), least < cut) << i;
    if (!found.at) continue;
    ++below_cut;
    EXPECT_EQ(instance.value[*found.at], least) << i;
  }
  EXPECT_GT(below_cut, 500);
}

TEST(ConvexSearch, AsksForFewOfMany) {
  uint32_t bounds = 0;
  uint32_t values = 0;
  const auto found = least_above_convex(
      1, 100000, kNothing,
      [&](uint32_t k) {
        ++bounds;
        return k < 40000 ? 80000.0 - k : static_cast<double>(k);
      },
      [&](uint32_t k) {
        ++values;
        return (k < 40000 ? 80000.0 - k : static_cast<double>(k)) + 2.5;
      });
  EXPECT_EQ(found.at, 40000U);
  EXPECT_LE(values, 6U);
  EXPECT_LE(bounds, 50U);
}

TEST(ConvexSearch, SaysNothingOfNothing) {
  const auto never = [](uint32_t) { return 0.0; };
  EXPECT_FALSE(least_above_convex(1, 0, kNothing, never, never).at.has_value());
}

}  // namespace
}  // namespace corro::plan
