// The options of `corro plan` and `corro probe`, as CLI11 knows them. Two programs use this
// description: `corro` for help and completion, and corro-plan to read its arguments
// (planning/plan_cli.h).
//
// CLI11 refuses words that are not among an option's choices, and an empty list of hosts. All else
// is checked by corro-plan.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/preflight.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace corro::app {

/// Values of options by their names, as CLI11 fills them in, before they are checked.
struct RawPlan {
  std::map<std::string, std::string> values;
  std::vector<std::string> removed;
  std::vector<std::string> files;
  launch::PreflightOptions hosts;
  bool explain = false;
  bool measure = false;
};

/// Adds `plan` and `probe` to the program. Borrows `raw`.
void describe_plan(CLI::App& program, RawPlan& raw);

}  // namespace corro::app
