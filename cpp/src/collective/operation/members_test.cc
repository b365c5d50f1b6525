#include "collective/operation/members.h"

#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::collective {
namespace {

TEST(Members, AreAListAndOfManyADigest) {
  EXPECT_EQ(describe_members(std::vector<int32_t>{2, 0, 1}), "[2, 0, 1]");
  std::vector<int32_t> many(1000);
  std::iota(many.begin(), many.end(), 2'000'000'000);
  const std::string text = describe_members(many);
  EXPECT_THAT(text, ::testing::HasSubstr("2000000007, ...] (1000 ranks, digest "));
  EXPECT_LT(text.size(), kMostMembersText);
  std::swap(many[998], many[999]);
  EXPECT_NE(describe_members(many), text) << "the order counts";
  EXPECT_LT(describe_members(std::vector<int32_t>(16, 2'000'000'000)).size(), kMostMembersText);
}

TEST(Members, ADifferenceNamesBoth) {
  EXPECT_TRUE(compare_members(0, "[0, 1]", 1, "[0, 1]").ok());
  const Status different = compare_members(0, "[0, 1]", 7, "[0, 1, 7]");
  EXPECT_EQ(different.code(), Code::kInvalidArgument);
  EXPECT_EQ(different.detail()->rank, 7);
  EXPECT_THAT(different.message(),
              ::testing::HasSubstr("rank 0 made it of [0, 1], rank 7 of [0, 1, 7]"));
}

}  // namespace
}  // namespace corro::collective
