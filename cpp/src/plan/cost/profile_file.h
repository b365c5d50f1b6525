// The profile's file, version 1 (docs/planner.md), read with one clear error line.
//
//   CORRO_ASSIGN(const Profile profile, read_profile(text, "profile.json"));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/cost/profile.h"

namespace corro::plan {

inline constexpr uint64_t kProfileVersion = 1;
inline constexpr size_t kMostProfileBytes = size_t{4} << 20U;

/// Reads a profile. INVALID_ARGUMENT "name:line: place: what is wrong" for a field that is not
/// known, missing, no number, negative, or out of order.
[[nodiscard]] Result<Profile> read_profile(std::string_view text, std::string_view name);

}  // namespace corro::plan
