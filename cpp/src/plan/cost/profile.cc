#include "plan/cost/profile.h"

#include <algorithm>
#include <cmath>

namespace corro::plan {

std::optional<LayerTime> Profile::find(std::string_view layer, double samples) const {
  const auto found = layers.find(layer);
  if (found == layers.end()) return std::nullopt;
  const std::vector<LayerTime>& times = found->second;
  if (times.size() == 1) {
    const double part = samples / times[0].samples;
    return LayerTime{samples, times[0].forward * part, times[0].backward * part};
  }
  size_t right = 1;
  while (right + 1 < times.size() && times[right].samples < samples) ++right;
  const LayerTime& a = times[right - 1];
  const LayerTime& b = times[right];
  const double part = (samples - a.samples) / (b.samples - a.samples);
  // A line through two noisy points may fall below zero before the first one.
  return LayerTime{samples, std::max(0.0, std::lerp(a.forward, b.forward, part)),
                   std::max(0.0, std::lerp(a.backward, b.backward, part))};
}

}  // namespace corro::plan
