#include <algorithm>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "plan/solve/stages.h"

namespace corro::plan {
namespace {

/// Gives each device as many layers as it can do in the limit; nothing if layers are left over.
/// `below`: in less than the limit.
std::optional<ChainSplit> fill_devices(std::span<const double> times,
                                       std::span<const double> speeds, double limit, bool below) {
  ChainSplit split;
  size_t layer = 0;
  for (const double speed : speeds) {
    double sum = 0;
    while (layer < times.size()) {
      const double longer = (sum + times[layer]) / speed;
      if (below ? longer >= limit : longer > limit) break;
      sum += times[layer++];
    }
    split.ends.push_back(static_cast<uint32_t>(layer));
    split.slowest = std::max(split.slowest, sum / speed);
  }
  if (layer < times.size()) return std::nullopt;
  return split;
}

}  // namespace

ChainSplit split_evenly(std::span<const double> times, std::span<const double> speeds) {
  CORRO_CHECK(!speeds.empty() && std::ranges::all_of(speeds, [](double s) { return s > 0; }),
              speeds.size());
  CORRO_CHECK(std::ranges::all_of(times, [](double t) { return t >= 0; }), times.size());
  const double all = std::accumulate(times.begin(), times.end(), 0.0);
  // One device could do everything, and does so unless the bisection finds better.
  double above = all / *std::ranges::max_element(speeds) * (1 + 1e-9);
  std::optional<ChainSplit> best = fill_devices(times, speeds, above, false);
  CORRO_CHECK(best.has_value(), above);
  double under = 0;
  constexpr int kMostHalvings = 60;
  for (int i = 0; i < kMostHalvings && under < best->slowest * (1 - 1e-9); ++i) {
    const double middle = (under + best->slowest) / 2;
    if (auto split = fill_devices(times, speeds, middle, false)) {
      best = std::move(split);
    } else {
      under = middle;
    }
  }
  // What is left are single steps from one possible sum to the next.
  while (best->slowest > 0) {
    auto split = fill_devices(times, speeds, best->slowest, true);
    if (!split) break;
    best = std::move(split);
  }
  return *best;
}

}  // namespace corro::plan
