// Which device does which part: groups that talk most get the fastest links (planning.md 3d).
//
//   CORRO_ASSIGN(const Links links, Links::matrix(16, bandwidths));
//   const std::vector<Axis> axes{{.size = 4, .bytes = ring_bytes(4, 8)},             // tensor
//                                {.size = 2, .bytes = ring_bytes(2, 4)},             // data
//                                {.size = 2, .bytes = 1, .shape = GroupShape::kChain}};
//   CORRO_ASSIGN(const Placement best, place(links, axes));      // best.devices[rank]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace corro::plan {

/// Bandwidth between any two devices, in bytes a second or any unit: symmetric, positive.
/// Immutable.
class Links {
 public:
  /// Row-major, devices x devices; the diagonal is not looked at. INVALID_ARGUMENT for another
  /// size, a bandwidth that is not positive and finite, and k_ij != k_ji.
  [[nodiscard]] static Result<Links> matrix(uint32_t devices, std::vector<double> bandwidths);

  [[nodiscard]] uint32_t devices() const { return devices_; }
  /// Requires first != second, both below devices().
  [[nodiscard]] double between(uint32_t first, uint32_t second) const;

 private:
  Links() = default;

  uint32_t devices_ = 0;
  std::vector<double> bandwidths_;
};

enum class GroupShape : uint8_t {
  kRing,   ///< Each member sends to the next, the last to the first.
  kChain,  ///< Each member sends to the next: pipeline stages.
};

/// One way of cutting the job: ranks that differ along this axis alone form a group.
struct Axis {
  uint32_t size;
  double bytes;  ///< Over each of a group's links in a step.
  GroupShape shape = GroupShape::kRing;
};

/// Bytes over each link of a ring that sums a buffer of `bytes` over `size` members.
[[nodiscard]] double ring_bytes(uint32_t size, double bytes);

struct Placement {
  /// By rank: its device. Ranks number the axes' coordinates, the first axis fastest.
  std::vector<uint32_t> devices;
  double cost = 0;  ///< Sum over axes of the slowest group's bytes / its slowest link.
};

/// The cost of placing ranks so. `devices` holds one for each rank, all different.
[[nodiscard]] double placement_cost(const Links& links, std::span<const Axis> axes,
                                    std::span<const uint32_t> devices);

struct PlacementOptions {
  /// Most swaps of two devices to try after filling; 0 = none.
  size_t most_swaps = 20000;
};

/// Fills the axes from the leaves of the links' tree up, in each order of the axes, keeps the best
/// and improves it by swaps. Best for links that form a hierarchy whose sizes the axes' sizes
/// divide; a good guess otherwise. INVALID_ARGUMENT for more ranks than devices, an axis of size 0
/// or of bytes that are no number >= 0, and more than 6 axes. Pure.
[[nodiscard]] Result<Placement> place(const Links& links, std::span<const Axis> axes,
                                      const PlacementOptions& options = {});

}  // namespace corro::plan
