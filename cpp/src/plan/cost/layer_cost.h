// What one layer costs on one device of a group that shares it, for one micro-batch: seconds and
// bytes, with the cheapest layouts of its operators.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "plan/cluster/cluster.h"
#include "plan/cost/calibration.h"
#include "plan/cost/profile.h"
#include "plan/cost/traffic.h"
#include "plan/model/model.h"

namespace corro::plan {

/// Where a tensor's elements are within a tensor-parallel group.
enum class Layout : uint8_t {
  kReplicated,  ///< Everywhere; its gradient, too.
  kDuplicated,  ///< Everywhere, but each rank has a part of the gradient's sum.
  kFeatures,    ///< Cut by features: heads, columns, the vocabulary.
  kSequence,    ///< Cut along the sequence.
  kPartial,     ///< Each rank has a part of the sum.
};
inline constexpr int kLayoutCount = 5;
[[nodiscard]] std::string_view name_of(Layout layout);

/// How a layer is cut, and for what.
struct LayerCut {
  uint32_t tensor = 1;
  uint32_t context = 1;
  uint32_t expert = 1;
  bool sequence_parallel = false;  ///< Between layers, activations are cut along the sequence.
  double micro_batch = 1;          ///< Samples.
  DType dtype = DType::kBF16;      ///< Of activations and matrix multiplications.
  uint32_t host_devices = 1;       ///< Devices of a host that the job uses.
};

/// What becomes of a layer's activations between forward and backward: all are kept, those of the
/// attention's core are computed again (Korthikanti et al. 2022, section 5), all are, or all go to
/// host memory and come back (Ren et al., "ZeRO-Offload", 2021, moves states so; Rhu et al.,
/// "vDNN", 2016, activations).
enum class Recompute : uint8_t { kNone, kAttention, kFull, kOffload };
inline constexpr int kRecomputeCount = 4;
[[nodiscard]] constexpr std::string_view name_of(Recompute recompute) {
  constexpr std::string_view kNames[] = {"none", "attention", "full", "offload"};
  return kNames[static_cast<size_t>(recompute)];
}

struct LayerCost {
  double forward = 0;            ///< Seconds, what is exchanged inside the layer included.
  double backward = 0;           ///< Seconds, without recomputing.
  double forward_traffic = 0;    ///< Seconds of `forward` that are exchanges.
  double backward_traffic = 0;   ///< The same of `backward`.
  double parameters = 0;         ///< Elements on this device, experts' not counted.
  double expert_parameters = 0;  ///< Elements on this device.
  double boundary = 0;           ///< Bytes of the layer's output on this device.
  double gradient = 0;           ///< Bytes of the widest gradient while the layer goes backward.
  std::array<double, kRecomputeCount> recompute = {};  ///< Seconds more, by Recompute.
  std::array<double, kRecomputeCount> kept = {};       ///< Bytes from forward to backward.
  std::vector<Layout> layouts = {};                    ///< Of each operator's output.
  /// Seconds of backward that are gradients of weights: half of what it computes.
  [[nodiscard]] double weight_part() const { return (backward - backward_traffic) / 2; }
};

/// Along which groups of ranks exchange.
enum class GroupAxis : uint8_t { kTensor, kContext, kExpert, kData, kPipeline };
inline constexpr int kGroupAxisCount = 5;
/// Bytes/s between hosts along each axis; 0: not known.
using AxisNetworks = std::array<double, kGroupAxisCount>;

/// What its devices and links are.
struct Machine {
  DeviceType device = {};
  HostGroup host = {};
  Link between_hosts = {};
  AxisNetworks placed = {};  ///< Of a placement; where not known, between_hosts holds.
  Calibration calibration = {};
  std::shared_ptr<const Profile> profile = {};  ///< Of this device; null: nothing was measured.
};

[[nodiscard]] inline GroupSpan placed_along(GroupAxis axis, GroupSpan span,
                                            const Machine& machine) {
  span.network = machine.placed[static_cast<size_t>(axis)];
  return span;
}

/// `input`: elements per sample that come from the layer before. Of a layer that the machine's
/// profile has for this dtype, computing takes what was measured, and cut ones a part of it as the
/// formulas say. Nothing if the cut cannot be: more
/// ways than an operator has, experts that do not divide, a dtype that the device has no unit for.
[[nodiscard]] std::optional<LayerCost> cost_of_layer(const LayerType& type, double input,
                                                     const LayerCut& cut, const Machine& machine);

}  // namespace corro::plan
