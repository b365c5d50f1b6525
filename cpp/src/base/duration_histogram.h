// DurationHistogram: how many durations fell between bounds that are the same everywhere, and their
// sum. Histograms of several processes may be added.
//
//   DurationHistogram taken;
//   taken.add(std::chrono::milliseconds(3));
//   text += prometheus_lines(taken, "corro_step_duration_seconds", R"(rank="0")");
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace corro {

/// In seconds, each in its bucket; the last bucket has what is longer.
inline constexpr std::array kDurationBounds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,  0.2,
                                               0.5,   1.0,   2.0,   5.0,  10.0, 20.0, 50.0, 100.0};
inline constexpr size_t kDurationBuckets = kDurationBounds.size() + 1;

/// The number of the first bucket whose bound is not below the duration.
[[nodiscard]] size_t bucket_of(Duration duration);

struct DurationHistogram {
  std::array<uint64_t, kDurationBuckets> counts{};
  uint64_t sum_ns = 0;

  void add(Duration duration);
  [[nodiscard]] uint64_t count() const;
  DurationHistogram& operator+=(const DurationHistogram& other);
  bool operator==(const DurationHistogram&) const = default;
};

/// Of the steps of a training.
struct StepHistograms {
  DurationHistogram taken;
  DurationHistogram waited;  ///< In a step, for collectives; all threads together.

  StepHistograms& operator+=(const StepHistograms& other);
  bool operator==(const StepHistograms&) const = default;
};

/// The lines of a histogram in Prometheus's text format, without its HELP and TYPE. `labels`: of it,
/// without braces; may be empty. Pure.
[[nodiscard]] std::string prometheus_lines(const DurationHistogram& histogram,
                                           std::string_view name, std::string_view labels);

}  // namespace corro
