#include "base/duration_histogram.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace corro {

size_t bucket_of(Duration duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  const auto* const bound = std::ranges::lower_bound(kDurationBounds, seconds);
  return static_cast<size_t>(bound - kDurationBounds.begin());
}

void DurationHistogram::add(Duration duration) {
  ++counts[bucket_of(duration)];
  sum_ns += static_cast<uint64_t>(duration.count());
}

uint64_t DurationHistogram::count() const {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

DurationHistogram& DurationHistogram::operator+=(const DurationHistogram& other) {
  for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  sum_ns += other.sum_ns;
  return *this;
}

StepHistograms& StepHistograms::operator+=(const StepHistograms& other) {
  taken += other.taken;
  waited += other.waited;
  return *this;
}

std::string prometheus_lines(const DurationHistogram& histogram, std::string_view name,
                             std::string_view labels) {
  constexpr double kSecond = 1e9;  // In nanoseconds.
  const std::string_view comma = labels.empty() ? "" : ",";
  std::string text;
  uint64_t below = 0;
  for (size_t i = 0; i < kDurationBuckets; ++i) {
    below += histogram.counts[i];
    const std::string bound =
        i < kDurationBounds.size() ? fmt::format("{}", kDurationBounds[i]) : "+Inf";
    text += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, bound, below);
  }
  const std::string braced = labels.empty() ? "" : fmt::format("{{{}}}", labels);
  text +=
      fmt::format("{}_sum{} {}\n", name, braced, static_cast<double>(histogram.sum_ns) / kSecond);
  text += fmt::format("{}_count{} {}\n", name, braced, below);
  return text;
}

}  // namespace corro
