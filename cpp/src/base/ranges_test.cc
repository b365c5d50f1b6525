#include "base/ranges.h"

#include <gtest/gtest.h>

namespace corro {
namespace {

TEST(Ranges, AreWrittenWithTheirEnds) {
  EXPECT_EQ(format_ranges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(format_ranges({}), "");
}

}  // namespace
}  // namespace corro
