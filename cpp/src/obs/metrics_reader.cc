#include "obs/metrics_reader.h"

#include <algorithm>

namespace corro::obs {

MetricValues read_metrics(const MetricCells& cells, uint32_t count) {
  MetricValues values(std::min<size_t>(count, kMetricCount));
  for (size_t i = 0; i < values.size(); ++i) values[i] = cells[i].load(std::memory_order_relaxed);
  return values;
}

std::optional<uint64_t> total_of(const MetricValues& values, std::string_view name) {
  std::optional<uint64_t> sum;
  for (size_t i = 0; i < std::min(values.size(), kMetricCount); ++i) {
    if (all_metrics()[i].name == name) sum = sum.value_or(0) + values[i];
  }
  return sum;
}

}  // namespace corro::obs
