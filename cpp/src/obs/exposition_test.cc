#include "obs/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace corro::obs {
namespace {

using testing::HasSubstr;
using testing::Not;

LabelledMetrics process(int32_t rank, std::string job = "night") {
  LabelledMetrics made{.job = std::move(job),
                       .host = "node7",
                       .rank = rank,
                       .pid = 100 + rank,
                       .values = MetricValues(kMetricCount)};
  for (size_t i = 0; i < kMetricCount; ++i) made.values[i] = 10 * i + static_cast<size_t>(rank);
  return made;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  EXPECT_EQ(lines.back(), "") << "the last line has an end, too";
  lines.pop_back();
  return lines;
}

TEST(Exposition, DescribesAMetricAndThenShowsItOfEveryProcess) {
  const std::string text = format_exposition(std::vector{process(0), process(1)});
  EXPECT_THAT(text, HasSubstr("# HELP corro_ops_total Operations and firings of plans begun.\n"
                              "# TYPE corro_ops_total counter\n"
                              R"(corro_ops_total{job="night",host="node7",rank="0",pid="100"} 0)"
                              "\n"
                              R"(corro_ops_total{job="night",host="node7",rank="1",pid="101"} 1)"
                              "\n# HELP corro_failures_total "));
  EXPECT_THAT(text, HasSubstr("# TYPE corro_groups gauge\n"));
}

TEST(Exposition, TimesAreInSeconds) {
  LabelledMetrics made = process(0);
  made.values[static_cast<size_t>(Metric::kStepNs)] = 2'500'000'000;
  const std::string text = format_exposition(std::vector{made});
  EXPECT_THAT(text, HasSubstr("# TYPE corro_step_seconds_total counter\n"));
  EXPECT_THAT(text, HasSubstr(R"(corro_step_seconds_total{job="night",host="node7",rank="0",)"
                              R"(pid="100"} 2.5)"
                              "\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE corro_recent_step_seconds gauge\n"));
}

TEST(Exposition, HistogramsAreOfThoseWhoseStepsHaveEnded) {
  LabelledMetrics made = process(1);
  made.steps.taken.add(std::chrono::milliseconds(3));
  made.steps.waited.add(std::chrono::milliseconds(1));
  const std::string text = format_exposition(std::vector{process(0), made});
  EXPECT_THAT(text, HasSubstr("# TYPE corro_step_duration_seconds histogram\n"
                              R"(corro_step_duration_seconds_bucket{job="night",host="node7",)"
                              R"(rank="1",pid="101",le="0.001"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"(corro_step_wait_duration_seconds_sum{job="night",host="node7",)"
                              R"(rank="1",pid="101"} 0.001)"));
  EXPECT_THAT(format_exposition(std::vector{process(0)}), Not(HasSubstr("histogram")));
}

TEST(Exposition, TransportsAreALabelOfOneMetric) {
  const std::string text = format_exposition(std::vector{process(0)});
  EXPECT_THAT(text, HasSubstr("# TYPE corro_bytes_sent_total counter\n"
                              R"(corro_bytes_sent_total{job="night",host="node7",rank="0",)"
                              R"(pid="100",transport="shm"} 80)"
                              "\n"
                              R"(corro_bytes_sent_total{job="night",host="node7",rank="0",)"
                              R"(pid="100",transport="tcp"} 90)"
                              "\n"));
}

/// Prometheus refuses a text in which something is there twice.
TEST(Exposition, NothingIsThereTwice) {
  const auto lines = lines_of(format_exposition(std::vector{process(0), process(1)}));
  std::set<std::string> keys;
  for (const std::string& line : lines)
    EXPECT_TRUE(keys.insert(line.substr(0, line.rfind(' '))).second) << line;
}

TEST(Exposition, ForeignTextCannotLeaveItsLabel) {
  const std::string text = format_exposition(std::vector{process(0, "a\"b\\c\nd\xff\x1b")});
  EXPECT_THAT(text, HasSubstr(R"({job="a\"b\\c\nd??",host="node7")"));
  for (const std::string& line : lines_of(text))
    EXPECT_TRUE(line.starts_with("corro_") || line.starts_with("# ")) << line;
}

TEST(Exposition, WhatAProcessDoesNotCountIsLeftOut) {
  LabelledMetrics old = process(0);
  old.values.resize(2);
  const std::string text = format_exposition(std::vector{old, process(1)});
  EXPECT_THAT(text, HasSubstr(R"(corro_failures_total{job="night",host="node7",rank="0")"));
  EXPECT_THAT(text, Not(HasSubstr(R"(corro_groups{job="night",host="node7",rank="0")")));
  EXPECT_EQ(format_exposition({}), "");
}

}  // namespace
}  // namespace corro::obs
