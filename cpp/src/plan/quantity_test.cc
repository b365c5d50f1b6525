#include "plan/quantity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace corro::plan {
namespace {

TEST(Quantity, IsANumberOfBaseUnitsOrHasAPrefixAndAUnit) {
  const struct {
    const char* text;
    Unit unit;
    double amount;
  } cases[] = {
      {"7", Unit::kBytes, 7},
      {"1.5e3", Unit::kBytes, 1500},
      {".5", Unit::kSeconds, 0.5},
      {"80 GiB", Unit::kBytes, 80.0 * (1ULL << 30U)},
      {"80GiB", Unit::kBytes, 80.0 * (1ULL << 30U)},
      {"80 GB", Unit::kBytes, 80e9},
      {"1 kB", Unit::kBytes, 1000},
      {"1 B", Unit::kBytes, 1},
      {"2 EB", Unit::kBytes, 2e18},
      {"2e3 EiB", Unit::kBytes, 2000.0 * 0x1p60},
      {"312 TFLOP/s", Unit::kFlopsPerSecond, 312e12},
      {"19.5 TFLOPS", Unit::kFlopsPerSecond, 19.5e12},
      {"1 EFLOP", Unit::kFlopsPerSecond, 1e18},
      {"2.0 TB/s", Unit::kBytesPerSecond, 2e12},
      {"200 Gbit/s", Unit::kBytesPerSecond, 25e9},
      {"200 Gb/s", Unit::kBytesPerSecond, 25e9},
      {"8 bit/s", Unit::kBytesPerSecond, 1},
      {"5 us", Unit::kSeconds, 5e-6},
      {"7 ns", Unit::kSeconds, 7e-9},
      {"3 ms", Unit::kSeconds, 3e-3},
      {"2 s", Unit::kSeconds, 2},
      {"-3 GB", Unit::kBytes, -3e9},
  };
  for (const auto& [text, unit, amount] : cases) {
    SCOPED_TRACE(text);
    EXPECT_EQ(parse_quantity(text, unit), amount);
  }
}

TEST(Quantity, RefusesWhatIsNone) {
  const std::pair<const char*, Unit> cases[] = {
      {"", Unit::kBytes},       {" ", Unit::kBytes},        {"GB", Unit::kBytes},
      {"80  GB", Unit::kBytes}, {"80 gb", Unit::kBytes},    {"80 GB/s", Unit::kBytes},
      {"80 G", Unit::kBytes},   {"80 GB ", Unit::kBytes},   {" 80 GB", Unit::kBytes},
      {"80 mB", Unit::kBytes},  {"0x10", Unit::kBytes},     {"nan", Unit::kBytes},
      {"inf", Unit::kBytes},    {"1e999", Unit::kBytes},    {"1e999 GB", Unit::kBytes},
      {"5 Gs", Unit::kSeconds}, {"5 min", Unit::kSeconds},  {"5 uss", Unit::kSeconds},
      {"1,5 GB", Unit::kBytes}, {"1.5.2 GB", Unit::kBytes}, {"--1", Unit::kBytes},
      {"1e", Unit::kBytes},     {"1 ", Unit::kBytes},       {".", Unit::kBytes},
      {"1 GB", Unit::kSeconds}, {"8 bit", Unit::kBytes},    {"80 KB", Unit::kBytes},
  };
  for (const auto& [text, unit] : cases) {
    SCOPED_TRACE(text);
    EXPECT_FALSE(parse_quantity(text, unit).has_value());
  }
}

TEST(Quantity, IsWrittenWithTheLargestPrefixThatKeepsIt) {
  EXPECT_EQ(quantity_text(80e9, Unit::kBytes), "80 GB");
  EXPECT_EQ(quantity_text(312e12, Unit::kFlopsPerSecond), "312 TFLOP/s");
  EXPECT_EQ(quantity_text(25e9, Unit::kBytesPerSecond), "25 GB/s");
  EXPECT_EQ(quantity_text(5e-6, Unit::kSeconds), "5 us");
  EXPECT_EQ(quantity_text(2e-3, Unit::kSeconds), "2 ms");
  EXPECT_EQ(quantity_text(1.5, Unit::kSeconds), "1.5");
  EXPECT_EQ(quantity_text(0, Unit::kBytes), "0");
  EXPECT_EQ(quantity_text(999, Unit::kBytes), "999");
}

TEST(Quantity, WhatIsWrittenIsReadAgainToTheBit) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> power(-30, 70);
  for (int i = 0; i < 20000; ++i) {
    const double amount = std::exp2(power(random));
    for (const Unit unit :
         {Unit::kBytes, Unit::kBytesPerSecond, Unit::kFlopsPerSecond, Unit::kSeconds}) {
      const std::string text = quantity_text(amount, unit);
      ASSERT_EQ(parse_quantity(text, unit), amount) << text;
    }
  }
}

TEST(Quantity, EveryExampleIsOne) {
  for (const Unit unit :
       {Unit::kBytes, Unit::kBytesPerSecond, Unit::kFlopsPerSecond, Unit::kSeconds}) {
    EXPECT_TRUE(parse_quantity(example_of(unit), unit).has_value()) << name_of(unit);
  }
}

}  // namespace
}  // namespace corro::plan
