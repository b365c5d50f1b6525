// The members of a group as its ranks compare them. Two programs may give one name to groups of
// different ranks; the first of them that meets the other says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace corro::collective {

/// Text of a list of members has fewer bytes.
inline constexpr size_t kMostMembersText = 256;

/// World ranks in group rank order as text, for example "[0, 1, 2]"; of more than 16 the first
/// ones, their number and a digest of all. Equal lists have equal texts.
[[nodiscard]] std::string describe_members(std::span<const int32_t> world_ranks);

/// What a member that has another list is told: INVALID_ARGUMENT with both ranks (world ranks) and
/// both lists, and the other rank as its culprit. OK if they are the same.
[[nodiscard]] Status compare_members(int32_t rank, std::string_view members, int32_t other_rank,
                                     std::string_view others);

}  // namespace corro::collective
