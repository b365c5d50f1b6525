#include "plan/partition/ideals.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "plan/partition/components.h"

namespace corro::plan {
namespace {

using Lists = std::vector<std::vector<uint32_t>>;

Lists random_predecessors(std::mt19937_64& random, uint32_t nodes) {
  Lists predecessors(nodes);
  for (uint32_t node = 0; node < nodes; ++node) {
    for (uint32_t before = 0; before < node; ++before) {
      if (random() % 3 == 0) predecessors[node].push_back(before);
    }
  }
  return predecessors;
}

uint32_t set_of(const Ideals& ideals, IdealId ideal, uint32_t nodes) {
  uint32_t set = 0;
  for (uint32_t node = 0; node < nodes; ++node) {
    if (ideals.holds(ideal, node)) set |= 1U << node;
  }
  return set;
}

TEST(Ideals, AreAllSetsThatHoldTheirPredecessors) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const uint32_t nodes = 1 + static_cast<uint32_t>(seed % 9);
    const Lists predecessors = random_predecessors(random, nodes);
    std::set<uint32_t> want;
    for (uint32_t set = 0; set < 1U << nodes; ++set) {
      bool complete = true;
      for (uint32_t node = 0; node < nodes; ++node) {
        for (const uint32_t before : predecessors[node]) {
          complete = complete && ((set >> node & 1U) == 0 || (set >> before & 1U) != 0);
        }
      }
      if (complete) want.insert(set);
    }
    const auto ideals = Ideals::create(predecessors);
    ASSERT_TRUE(ideals.ok());
    std::set<uint32_t> got;
    for (IdealId ideal = 0; ideal < ideals->count(); ++ideal) {
      got.insert(set_of(*ideals, ideal, nodes));
    }
    EXPECT_EQ(got, want);
    EXPECT_EQ(got.size(), ideals->count());
    EXPECT_EQ(set_of(*ideals, 0, nodes), 0U);
    EXPECT_EQ(set_of(*ideals, ideals->full(), nodes), (1U << nodes) - 1);
  }
}

TEST(Ideals, TheWalkVisitsEachPartOnceWithWhatWasRemoved) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const uint32_t nodes = 1 + static_cast<uint32_t>(seed % 8);
    const auto ideals = Ideals::create(random_predecessors(random, nodes));
    ASSERT_TRUE(ideals.ok());
    for (IdealId ideal = 0; ideal < ideals->count(); ++ideal) {
      const uint32_t whole = set_of(*ideals, ideal, nodes);
      uint32_t removed = 0;
      std::set<IdealId> visited;
      ideals->visit_below(
          ideal,
          [&](uint32_t node, IdealId part) {
            removed |= 1U << node;
            EXPECT_EQ(set_of(*ideals, part, nodes), whole & ~removed);
            EXPECT_LT(part, ideal);
            EXPECT_TRUE(visited.insert(part).second);
            return true;
          },
          [&](uint32_t node) { removed &= ~(1U << node); });
      EXPECT_EQ(removed, 0U);
      size_t parts = 0;
      for (IdealId part = 0; part < ideals->count(); ++part) {
        const uint32_t set = set_of(*ideals, part, nodes);
        if ((set & ~whole) == 0 && set != whole) ++parts;
      }
      EXPECT_EQ(visited.size(), parts);
    }
  }
}

TEST(Ideals, AWalkThatTurnsBackSkipsWhatIsBelow) {
  const auto ideals = Ideals::create({{}, {0}, {1}, {2}});  // A chain of four.
  ASSERT_TRUE(ideals.ok());
  int visits = 0;
  int left = 0;
  ideals->visit_below(
      ideals->full(), [&](uint32_t /*node*/, IdealId /*part*/) { return ++visits < 2; },
      [&](uint32_t /*node*/) { ++left; });
  EXPECT_EQ(visits, 2);
  EXPECT_EQ(left, 2);
}

TEST(Components, FollowTheEdges) {
  const Components components = find_components({{1}, {2}, {0, 3}, {4}, {}, {4}});
  EXPECT_EQ(components.count, 4U);
  EXPECT_EQ(components.of[0], components.of[1]);
  EXPECT_EQ(components.of[0], components.of[2]);
  EXPECT_LT(components.of[2], components.of[3]);
  EXPECT_LT(components.of[3], components.of[4]);
  EXPECT_LT(components.of[5], components.of[4]);
}

TEST(Components, ALongChainNeedsNoStack) {
  constexpr uint32_t kNodes = 200'000;
  Lists next(kNodes);
  for (uint32_t node = 0; node + 1 < kNodes; ++node) next[node].push_back(node + 1);
  EXPECT_EQ(find_components(next).count, kNodes);
}

}  // namespace
}  // namespace corro::plan
