#include "base/duration_histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace corro {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(DurationHistogram, ABoundIsInItsBucket) {
  EXPECT_EQ(bucket_of(0ns), 0U);
  EXPECT_EQ(bucket_of(1ms), 0U);
  EXPECT_EQ(bucket_of(1'000'001ns), 1U);
  EXPECT_EQ(bucket_of(100s), kDurationBuckets - 2);
  EXPECT_EQ(bucket_of(1h), kDurationBuckets - 1);
}

TEST(DurationHistogram, OfSeveralProcessesAreAdded) {
  DurationHistogram one, other;
  one.add(3ms);
  other.add(4ms);
  other.add(2s);
  one += other;
  EXPECT_EQ(one.count(), 3U);
  EXPECT_EQ(one.counts[bucket_of(3ms)], 2U);
  EXPECT_EQ(one.sum_ns, 2'007'000'000U);
}

TEST(DurationHistogram, PrometheusReadsItCumulated) {
  DurationHistogram histogram;
  histogram.add(3ms);
  histogram.add(1500ms);
  const std::string text = prometheus_lines(histogram, "x_seconds", R"(rank="0")");
  EXPECT_THAT(text, StartsWith("x_seconds_bucket{rank=\"0\",le=\"0.001\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("x_seconds_bucket{rank=\"0\",le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("x_seconds_bucket{rank=\"0\",le=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("x_seconds_bucket{rank=\"0\",le=\"2\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("x_seconds_bucket{rank=\"0\",le=\"+Inf\"} 2\n"
                              "x_seconds_sum{rank=\"0\"} 1.503\nx_seconds_count{rank=\"0\"} 2\n"));
  EXPECT_THAT(prometheus_lines(histogram, "x_seconds", ""),
              HasSubstr("x_seconds_bucket{le=\"+Inf\"} 2\nx_seconds_sum 1.503\n"));
}

}  // namespace
}  // namespace corro
