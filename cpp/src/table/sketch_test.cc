#include "table/sketch.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace corro::table {
namespace {

TEST(Sketch, AdmitsAKeyThatCameOftenEnough) {
  for (const uint32_t least : {2U, 3U, 100U, 65535U}) {
    Sketch sketch(7, least);
    for (uint32_t push = 1; push < least; ++push) ASSERT_FALSE(sketch.admits(5)) << push;
    EXPECT_TRUE(sketch.admits(5));
    EXPECT_TRUE(sketch.admits(5));
    EXPECT_FALSE(sketch.admits(6));
  }
}

TEST(Sketch, ManyKeysDisturbEachOtherLittle) {
  Sketch sketch(7, 3);
  int wrong = 0;
  for (uint64_t key = 0; key < 200'000; ++key) {
    if (sketch.admits(key)) ++wrong;
    if (sketch.admits(key)) ++wrong;
    if (!sketch.admits(key)) FAIL() << "came three times: " << key;
  }
  EXPECT_LT(wrong, 2000);
}

TEST(Sketch, ForgetsKeysThatHardlyCome) {
  Sketch sketch(7, 2);
  EXPECT_FALSE(sketch.admits(5));
  uint64_t other = 1000;
  for (uint32_t counted = 1; counted < Sketch::kWidth; ++other) {
    if (!sketch.admits(other)) ++counted;
  }
  EXPECT_FALSE(sketch.admits(5));
  EXPECT_TRUE(sketch.admits(5));
}

TEST(Sketch, NeverFills) {
  Sketch sketch(7, 2);
  constexpr uint64_t kKeys = 4 * Sketch::kWidth;
  uint64_t admitted = 0;
  for (uint64_t key = 0; key < kKeys; ++key) admitted += sketch.admits(key) ? 1 : 0;
  EXPECT_LT(static_cast<double>(admitted) / kKeys, 0.15);
}

}  // namespace
}  // namespace corro::table
