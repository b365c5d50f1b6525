// `corro operator`.
#pragma once

#include <string>
#include <vector>

namespace corro::app {

/// Runs a cluster's jobs until SIGINT or SIGTERM. `arguments` begin with "operator". Status 2 for
/// what cannot be, 1 for a cluster that cannot be reached or does not allow it.
[[nodiscard]] int operator_program(const std::vector<std::string>& arguments);

}  // namespace corro::app
