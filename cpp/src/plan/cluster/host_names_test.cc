#include "plan/cluster/host_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace corro::plan {
namespace {

TEST(HostNames, AgreeWithASetOfAllNames) {
  const std::vector<std::string> stems = {"a", "b", "a-", "rack1-n"};
  size_t refused = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    HostNames names;
    std::set<std::string> all;
    for (int i = 0; i < 12; ++i) {
      HostGroup group{.name = stems[random() % stems.size()], .count = 1};
      if (random() % 2 == 0) {
        group.count = static_cast<uint32_t>(2 + random() % 8);
        group.first = static_cast<uint32_t>(random() % 40);
      } else if (random() % 3 != 0) {
        group.name += (random() % 4 == 0 ? "0" : "") + std::to_string(random() % 40);
      }
      Cluster cluster{.hosts = {group}};
      std::set<std::string> own;
      for (uint32_t host = 0; host < group.count; ++host) own.insert(cluster.host_name(host));
      std::set<std::string> both;
      std::ranges::set_intersection(own, all, std::inserter(both, both.end()));
      const std::string twice = names.add(group);
      ASSERT_EQ(twice.empty(), both.empty()) << group.name;
      if (twice.empty()) {
        all.merge(own);
      } else {
        ASSERT_TRUE(both.contains(twice)) << twice;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace corro::plan
