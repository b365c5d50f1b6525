#include "dashboard/host_links.h"

#include <gtest/gtest.h>

#include <vector>

namespace corro::dashboard {
namespace {

using std::chrono::seconds;

constexpr UnixTime kFirstLook{seconds(1000)};

LinkOfMember sent(const char* member, const char* from, const char* to, uint64_t bytes) {
  return {.member = member, .from = from, .to = to, .bytes = bytes};
}

TEST(HostLinks, AddUpProcessesOfAHost) {
  HostLinks links;
  links.show({sent("m0", "a", "b", 100), sent("m1", "a", "b", 10), sent("m2", "b", "a", 7)},
             kFirstLook);
  const auto all = links.all();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].from, "a");
  EXPECT_EQ(all[0].to, "b");
  EXPECT_EQ(all[0].bytes, 110U);
  EXPECT_EQ(all[0].bytes_per_second, 0) << "nothing is known before";
  EXPECT_EQ(all[1].bytes, 7U);
}

TEST(HostLinks, CountOnAfterAnotherEngineBegins) {
  HostLinks links;
  links.show({sent("m0", "a", "b", 100), sent("m1", "a", "b", 100)}, kFirstLook);
  links.show({sent("m0", "a", "b", 20), sent("m1", "a", "b", 130)}, kFirstLook + seconds(1));
  EXPECT_EQ(links.all()[0].bytes, 250U);
  links.show({sent("m1", "a", "b", 130)}, kFirstLook + seconds(2));
  EXPECT_EQ(links.all()[0].bytes, 250U) << "a process that is gone has sent what it has sent";
}

TEST(HostLinks, HaveTheRateOfTheLastSeconds) {
  HostLinks links;
  for (int second = 0; second <= 60; ++second) {
    const uint64_t bytes = second < 50 ? 1000 : 1000 + 30 * static_cast<uint64_t>(second - 50);
    links.show({sent("m0", "a", "b", bytes)}, kFirstLook + seconds(second));
  }
  EXPECT_DOUBLE_EQ(links.all()[0].bytes_per_second, 30);
}

TEST(HostLinks, NameTheBusiestInTheOrderOfTheirNames) {
  HostLinks links;
  links.show({sent("m0", "a", "b", 0), sent("m0", "a", "c", 0), sent("m1", "b", "a", 0)},
             kFirstLook);
  links.show({sent("m0", "a", "b", 5), sent("m0", "a", "c", 50), sent("m1", "b", "a", 70)},
             kFirstLook + seconds(1));
  const auto busiest = links.busiest(2);
  ASSERT_EQ(busiest.size(), 2U);
  EXPECT_EQ(busiest[0].to, "c");
  EXPECT_EQ(busiest[1].to, "a");
  EXPECT_EQ(links.busiest(3).size(), 3U);
}

TEST(Rates, BeginAnewWhereAClockGoesBack) {
  Rates rates;
  rates.sample({{"x", 0}}, kFirstLook);
  rates.sample({{"x", 10}}, kFirstLook + seconds(1));
  EXPECT_DOUBLE_EQ(rates.of("x"), 10);
  rates.sample({{"x", 20}}, kFirstLook);
  EXPECT_EQ(rates.of("x"), 0);
  rates.sample({{"x", 22}, {"new", 9}}, kFirstLook + seconds(2));
  EXPECT_DOUBLE_EQ(rates.of("x"), 1);
  EXPECT_EQ(rates.of("new"), 0);
  EXPECT_EQ(rates.of("none"), 0);
  rates.sample({{"x", 5}}, kFirstLook + seconds(3));
  EXPECT_EQ(rates.of("x"), 0) << "it has become less";
}

}  // namespace
}  // namespace corro::dashboard
