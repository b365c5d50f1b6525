#include "base/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NodeList, RangesKeepTheirZeros) {
  EXPECT_THAT(expand_node_list("node[01-03,7],gpu1").value(),
              ElementsAre("node01", "node02", "node03", "node7", "gpu1"));
  EXPECT_THAT(expand_node_list("n[9-11]").value(), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(expand_node_list("n[098-101]").value(), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(expand_node_list("a,b-1.site").value(), ElementsAre("a", "b-1.site"));
  EXPECT_THAT(expand_node_list("n[1-2]-ib").value(), ElementsAre("n1-ib", "n2-ib"));
}

TEST(NodeList, SeveralBracketsAreAllCombinations) {
  EXPECT_THAT(expand_node_list("r[1-2]n[3,5]").value(),
              ElementsAre("r1n3", "r1n5", "r2n3", "r2n5"));
}

TEST(NodeList, WhatIsBrokenIsNamed) {
  for (const char* text : {"", "a,,b", "n[1-", "n[]", "n[3-1]", "n[a]", "n]1[", "n[1-2-3]",
                           "n[0-99999999]", "n[1-60000][1-60000]", "n[99999999999]"}) {
    const auto hosts = expand_node_list(text);
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_EQ(hosts.status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_THAT(expand_node_list("a,n[1-").status().message(), HasSubstr("'n[1-'"));
}

}  // namespace
}  // namespace corro
