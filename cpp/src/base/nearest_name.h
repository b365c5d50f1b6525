// What a user who misspelt a name may have meant.
#pragma once

#include <set>
#include <string>

namespace corro {

/// The one of `known` that is nearest to `name`, if it is at most two letters away, one for a short
/// name; else "". Pure.
[[nodiscard]] std::string nearest_name(const std::string& name, const std::set<std::string>& known);

/// The same for names that are often cut short: the shortest of `known` that begins with `name`, if
/// that has three letters or more, wins over a nearer one. Pure.
[[nodiscard]] std::string completed_or_nearest_name(const std::string& name,
                                                    const std::set<std::string>& known);

}  // namespace corro
