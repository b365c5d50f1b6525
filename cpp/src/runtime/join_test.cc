#include "runtime/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::runtime {
namespace {

using testing::ElementsAre;

TEST(Layout, HostsAreNumberedByTheirLowestRank) {
  const std::vector<std::string> hosts = {"b", "a", "b", "c"};
  const Layout layout = layout_of(2, hosts);
  EXPECT_EQ(layout.size, 4);
  EXPECT_EQ(layout.local_rank, 1);
  EXPECT_EQ(layout.local_size, 2);
  EXPECT_EQ(layout.node_rank, 0);
  EXPECT_EQ(layout.nodes, 3);
  EXPECT_THAT(layout.node_of, ElementsAre(0, 1, 0, 2));
  EXPECT_EQ(layout_of(3, hosts).node_rank, 2);
}

}  // namespace
}  // namespace corro::runtime
