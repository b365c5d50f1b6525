// LaneKey: the name of a lane between ranks: in frames, in handshakes and on boards.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace corro {

/// A lane of a group. Every member computes the same key from what names the group and from what
/// the lane is for, so that no rank has to ask another. An epoch's lanes end with it: what comes
/// later under their keys is dropped.
struct LaneKey {
  uint32_t epoch = 0;  ///< Of the membership in which the group was made.
  uint64_t key = 0;
  friend auto operator<=>(const LaneKey&, const LaneKey&) = default;
};

struct LaneKeyHash {
  [[nodiscard]] size_t operator()(const LaneKey& lane) const {
    return static_cast<size_t>(lane.key ^ lane.epoch * 0x9E3779B97F4A7C15ULL);
  }
};

}  // namespace corro
