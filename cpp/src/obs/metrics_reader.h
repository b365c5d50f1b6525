// Metrics read from outside. The memory is foreign: the flight reader has checked its size and
// format, and what is read is numbers.
#pragma once

#include <optional>
#include <string_view>

#include "obs/metrics.h"

namespace corro::obs {

/// `count`: how many metrics the writer says that it knows. Those that this release does not know
/// are left out.
[[nodiscard]] MetricValues read_metrics(const MetricCells& cells, uint32_t count);
/// The sum of all metrics of this name; nullopt where the writer counts none of them.
[[nodiscard]] std::optional<uint64_t> total_of(const MetricValues& values, std::string_view name);

}  // namespace corro::obs
