// Profile: how long each layer took where somebody measured it, instead of what device sheets say.
//
//   const auto times = profile.find("Block", 4);  // of 4 samples, from a line through
//                                                // the measured numbers
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace corro::plan {

/// Seconds of a whole layer, on one device that shares it with nobody.
struct LayerTime {
  double samples = 1;
  double forward = 0;
  double backward = 0;  ///< Without recomputing.
  bool operator==(const LayerTime&) const = default;
};

/// Immutable once it is filled.
struct Profile {
  std::string device = {};  ///< Name of the device type that was measured.
  DType dtype = DType::kF32;
  double update = 0;  ///< Seconds of the optimizer for each parameter on a device.
  /// By the name of the layer's type; of each at least one, with ascending `samples`.
  std::map<std::string, std::vector<LayerTime>, std::less<>> layers = {};

  /// Between two measured numbers of samples, and beyond, on the line through the two nearest;
  /// with a single one in proportion to it. Nothing for a layer that was not measured.
  [[nodiscard]] std::optional<LayerTime> find(std::string_view layer, double samples) const;
  bool operator==(const Profile&) const = default;
};

}  // namespace corro::plan
