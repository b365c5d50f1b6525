#include "launch/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using std::chrono::milliseconds;

TEST(ReadClock, IsHalfARoundTripAfterTheQuestion) {
  const auto reading = read_clock(milliseconds(1000), milliseconds(3505), milliseconds(1010));
  EXPECT_EQ(reading.ahead, milliseconds(2500));
  EXPECT_EQ(reading.error, milliseconds(5));
  EXPECT_EQ(read_clock(milliseconds(1000), milliseconds(905), milliseconds(1010)).ahead,
            -milliseconds(100));
}

TEST(FindWays, TakesTheAddressByWhichMostReachAHost) {
  const std::vector<HostHealth> hosts = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
  const auto ways = find_ways({{{2, "10.1.0.3"}, {2, "10.0.0.3"}, {1, "10.0.0.2"}},
                               {{2, "10.0.0.3"}, {0, "10.0.0.1"}},
                               {{0, "10.2.0.1"}}},
                              hosts);
  ASSERT_EQ(ways.size(), 6U);
  const auto way = [&](size_t from, size_t to) {
    return std::ranges::find(ways, Link{from, to}, &LinkHealth::link)->address;
  };
  EXPECT_EQ(way(0, 2), "10.0.0.3");
  EXPECT_EQ(way(1, 2), "10.0.0.3");
  EXPECT_EQ(way(1, 0), "10.0.0.1");
  EXPECT_EQ(way(2, 0), "10.2.0.1");
  EXPECT_EQ(way(2, 1), "") << "it does not reach it";
}

TEST(FindWays, LeavesOutHostsThatDoNotAnswer) {
  const std::vector<HostHealth> hosts = {
      {.name = "a"}, {.name = "b", .failure = "x"}, {.name = "c"}};
  EXPECT_EQ(find_ways({{}, {}, {}}, hosts).size(), 2U);
}

}  // namespace
}  // namespace corro::launch
