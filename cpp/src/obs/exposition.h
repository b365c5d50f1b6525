// Metrics as Prometheus reads them: its text exposition format, version 0.0.4.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/duration_histogram.h"
#include "obs/metrics.h"

namespace corro::obs {

/// One process's metrics, and what tells it apart from others.
struct LabelledMetrics {
  std::string job, host;
  int32_t rank = -1;
  int32_t pid = 0;  ///< Also tells processes without a job apart.
  MetricValues values;
  StepHistograms steps = {};
};

/// For each metric its HELP, its TYPE, and a line for each process that has it. A counter's name
/// ends in _total. Then the histograms of those whose steps have ended. Pure.
[[nodiscard]] std::string format_exposition(std::span<const LabelledMetrics> processes);

}  // namespace corro::obs
