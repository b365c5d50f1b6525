#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "plan/solve/placement.h"

namespace corro::plan {
namespace {

bool is_bandwidth(double value) { return value > 0 && std::isfinite(value); }

Status bad_links(std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("links: {}", what)};
}

}  // namespace

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
  return bandwidths_[size_t{first} * devices_ + second];
}

}  // namespace corro::plan
