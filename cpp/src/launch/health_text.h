// The report of `corro doctor -H`, for people and for programs.
#pragma once

#include <string>

#include "launch/findings.h"

namespace corro::launch {

/// What was found, the worst first; then a table of the hosts, and one of the links, the slowest
/// first.
[[nodiscard]] std::string format_health(const Health& health, const std::vector<Finding>& findings);
[[nodiscard]] std::string format_health_json(const Health& health,
                                             const std::vector<Finding>& findings);

}  // namespace corro::launch
