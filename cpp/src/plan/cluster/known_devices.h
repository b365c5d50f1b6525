// Device types that a cluster file can name without describing them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "plan/cluster/cluster.h"

namespace corro::plan {

/// A device type as its data sheet has it: memory in GB (1e9), and peaks without sparsity, f32 on
/// the plain units and not as TF32.
struct KnownDevice {
  std::string_view name;
  double memory_gb;
  double memory_gb_per_s;
  double f32_tflops;
  double f16_tflops;
  double bf16_tflops;  ///< 0: not on its matrix units.
  std::string_view source;

  [[nodiscard]] DeviceType type() const;
};

[[nodiscard]] std::span<const KnownDevice> known_devices();
/// Returns nothing for a name that is not known.
[[nodiscard]] std::optional<DeviceType> find_known_device(std::string_view name);

}  // namespace corro::plan
