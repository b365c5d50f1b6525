#include "plan/amounts.h"

#include <gtest/gtest.h>

namespace corro::plan {
namespace {

TEST(Amounts, HaveThreeDigits) {
  EXPECT_EQ(seconds_text(0), "0 s");
  EXPECT_EQ(seconds_text(12.345), "12.3 s");
  EXPECT_EQ(seconds_text(0.99999), "1.00 s");
  EXPECT_EQ(seconds_text(0.0099999), "10.0 ms");
  EXPECT_EQ(seconds_text(4.5e-5), "45.0 us");
  EXPECT_EQ(seconds_text(1e-9), "0.001 us");
  EXPECT_EQ(seconds_text(123456), "123456 s");
  EXPECT_EQ(bytes_text(80 * 0x1p30), "80.0 GiB");
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(count_text(174.6e9), "175 G");
  EXPECT_EQ(count_text(12), "12.0");
  EXPECT_EQ(money_text(1800.4), "1 800");
  EXPECT_EQ(money_text(12.5), "12.5");
  EXPECT_EQ(hours_text(0.5), "30.0 min");
  EXPECT_EQ(hours_text(5.2), "5.20 h");
  EXPECT_EQ(hours_text(818.4), "34.1 days");
  EXPECT_EQ(integer_text(1234567), "1 234 567");
  EXPECT_EQ(integer_text(12), "12");
  EXPECT_EQ(counted(1, "layer"), "1 layer");
  EXPECT_EQ(counted(1024, "device"), "1 024 devices");
}

TEST(Amounts, AreCutBetweenCharacters) {
  EXPECT_EQ(columns_of("größe"), 5U);
  EXPECT_EQ(clipped("größe", 5), "größe");
  EXPECT_EQ(clipped("größer", 5), "größ…");
  EXPECT_EQ(clipped("ö", 1), "ö");
}

}  // namespace
}  // namespace corro::plan
