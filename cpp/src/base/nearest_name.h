// What a user who misspelt a name may have meant.
#pragma once

#include <set>
#include <string>

namespace corro {

/// The one of `known` that is nearest to `name`, if it is at most two letters away, one for a short
/// name; else "". Pure.
[[nodiscard]] std::string nearest_name(const std::string& name, const std::set<std::string>& known);

}  // namespace corro
