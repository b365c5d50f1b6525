// What `corro plan` and `corro probe` take: their options, for their help, for completion and for
// the program that carries them out (planning/plan_cli.h). No value is looked at here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/preflight.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace corro::app {

/// What CLI11 fills: values of options by their names, before they are checked.
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
