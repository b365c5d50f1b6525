#include "dashboard/series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace corro::dashboard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr UnixTime kOrigin{seconds(1000)};

Series::Point point_at(int64_t second) {
  return {.at = kOrigin + seconds(second),
          .step = static_cast<uint64_t>(second),
          .value = static_cast<double>(second)};
}

TEST(Series, KeepsTheCourseOfAJobOfAnyLength) {
  Series series;
  constexpr int64_t kLength = 100'000;
  for (int64_t second = 0; second <= kLength; ++second) series.add(point_at(second));
  const auto& points = series.points();
  EXPECT_LE(points.size(), Series::kMost);
  EXPECT_GE(points.size(), Series::kMost / 2);
  EXPECT_EQ(points.front().at, kOrigin);
  EXPECT_EQ(points.back().value, kLength) << "the newest value is there";
  for (size_t i = 2; i + 1 < points.size(); ++i) {
    const auto pause = (points[i].at - points[i - 1].at) / seconds(1);
    EXPECT_GE(pause, kLength / 400) << i;
    EXPECT_LE(pause, kLength / 100) << i;
  }
}

TEST(Series, ValuesThatComeSoonMoveTheLastPoint) {
  Series series;
  series.add(point_at(0));
  for (int i = 1; i <= 10; ++i)
    series.add({.at = kOrigin + milliseconds(i * 100), .step = 1, .value = i / 10.0});
  ASSERT_EQ(series.points().size(), 3U);
  EXPECT_EQ(series.points()[1].value, 0.8);
  EXPECT_EQ(series.points()[2].value, 1.0);
}

TEST(Series, WhatIsSaidAgainIsOnePoint) {
  Series series;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const int second : {0, 5, 10}) series.add({kOrigin + seconds(second), 7, kNone});
  EXPECT_EQ(series.points().size(), 1U);
  series.add({kOrigin + seconds(15), 8, kNone});
  EXPECT_EQ(series.points().size(), 2U) << "of another step";
}

}  // namespace
}  // namespace corro::dashboard
