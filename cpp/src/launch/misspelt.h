// Variables whose names are nearly those that corro reads.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "launch/options.h"

namespace corro::launch {

/// One line for each CORRO_ variable that is none of `known` but at most two letters away from one:
/// "CORRO_TIMOUT is set, but corro does not know it: did you mean CORRO_TIMEOUT?". Pure.
[[nodiscard]] std::vector<std::string> find_misspelt(const Variables& environment,
                                                     const std::set<std::string>& known);

}  // namespace corro::launch
