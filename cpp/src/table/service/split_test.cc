#include "table/service/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

TEST(Split, AKeyIsPulledFromItsFirstHolderAndPushedToAll) {
  std::vector<uint64_t> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  const Holders holders(3, 2);
  for (const auto& lost : {std::vector<bool>{false, false, false}, {false, true, false}}) {
    const auto pull = for_pull(keys, holders, lost);
    const auto push = for_push(keys, holders, lost);
    std::vector<int> pulled(keys.size());
    std::vector<int> pushed(keys.size());
    for (size_t server = 0; server < 3; ++server) {
      EXPECT_TRUE(std::ranges::is_sorted(push[server].keys));
      for (const uint32_t row : pull[server].rows) ++pulled[row];
      for (const uint32_t row : push[server].rows) ++pushed[row];
      EXPECT_EQ(pull[server].keys.empty(), lost[server]);
      EXPECT_EQ(push[server].keys.empty(), lost[server]);
    }
    for (size_t row = 0; row < keys.size(); ++row) {
      const auto servers = holders.of(keys[row]);
      EXPECT_EQ(pulled[row], 1);
      EXPECT_EQ(pushed[row], std::ranges::count_if(servers, [&](auto one) { return !lost[one]; }));
    }
  }
}

}  // namespace
}  // namespace corro::table
