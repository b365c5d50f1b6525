#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "plan/solve/placement.h"

namespace corro::plan {
namespace {

bool is_bandwidth(double value) { return value > 0 && std::isfinite(value); }

Status bad_links(std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("links: {}", what)};
}

}  // namespace

Result<Links> Links::hierarchy(std::vector<Level> levels) {
  constexpr uint64_t kMostDevices = uint64_t{1} << 24U;
  uint64_t devices = 1;
  for (const Level& level : levels) {
    if (level.members == 0 || !is_bandwidth(level.bandwidth))
      return bad_links(
          fmt::format("a level of {} members at bandwidth {}", level.members, level.bandwidth));
    devices *= level.members;
    if (devices > kMostDevices) return bad_links(fmt::format("more than {} devices", kMostDevices));
  }
  Links links;
  links.devices_ = static_cast<uint32_t>(devices);
  links.levels_ = std::move(levels);
  return links;
}

Result<Links> Links::matrix(uint32_t devices, std::vector<double> bandwidths) {
  if (devices == 0) return bad_links("there are no devices");
  if (bandwidths.size() != size_t{devices} * devices)
    return bad_links(fmt::format("{} bandwidths for {} devices", bandwidths.size(), devices));
  for (uint32_t i = 0; i < devices; ++i) {
    for (uint32_t j = 0; j < i; ++j) {
      const double there = bandwidths[size_t{i} * devices + j];
      const double back = bandwidths[size_t{j} * devices + i];
      if (!is_bandwidth(there) || there != back)
        return bad_links(
            fmt::format("{} and {} between devices {} and {}; must be equal, positive "
                        "and finite",
                        there, back, i, j));
    }
  }
  Links links;
  links.devices_ = devices;
  links.bandwidths_ = std::move(bandwidths);
  return links;
}

double Links::between(uint32_t first, uint32_t second) const {
  if (!bandwidths_.empty()) return bandwidths_[size_t{first} * devices_ + second];
  for (const Level& level : levels_) {
    first /= level.members;
    second /= level.members;
    if (first == second) return level.bandwidth;
  }
  CORRO_CHECK(false, first, second, devices_);
  return 0;
}

}  // namespace corro::plan
