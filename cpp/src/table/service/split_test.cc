#include "table/service/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace corro::table {
namespace {

TEST(Split, EachIdFindsItsKey) {
  const std::vector<uint64_t> ids = {5, 3, 5, UINT64_MAX, 0, 3};
  const DistinctKeys keys = distinct(ids);
  EXPECT_EQ(keys.keys, (std::vector<uint64_t>{0, 3, 5, UINT64_MAX}));
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(keys.keys[keys.row_of[i]], ids[i]);
  EXPECT_TRUE(distinct({}).keys.empty());
}

TEST(Split, GradientsAreAddedInTheOrderOfTheIds) {
  // In another order the sum of these is 0.
  const std::vector<float> gradients = {1.0F, 1e8F, -1e8F, -0.0F};
  const auto sums = add_up(distinct(std::vector<uint64_t>{7, 7, 7, 8}), gradients, 1);
  EXPECT_EQ(sums[0], (1.0F + 1e8F) - 1e8F);
  EXPECT_TRUE(std::signbit(sums[1]));
}

TEST(Split, ServersHaveAboutEquallyMany) {
  std::vector<uint64_t> keys(40000);
  std::iota(keys.begin(), keys.end(), 0);
  for (const size_t servers : {1UL, 2UL, 3UL, 7UL}) {
    const auto split = by_server(keys, servers);
    ASSERT_EQ(split.size(), servers);
    size_t total = 0;
    for (const ServerKeys& server : split) {
      total += server.keys.size();
      EXPECT_GT(server.keys.size(), keys.size() / servers * 9 / 10);
      EXPECT_TRUE(std::ranges::is_sorted(server.keys));
      for (size_t i = 0; i < server.keys.size(); ++i)
        EXPECT_EQ(keys[server.rows[i]], server.keys[i]);
    }
    EXPECT_EQ(total, keys.size());
  }
}

}  // namespace
}  // namespace corro::table
