// The commands that look at a running job: `corro status`, `corro top` and `corro stacks`.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace corro::app {

/// What is typed for one of them.
struct LookCommand {
  std::string job;    ///< Its id, or its launcher's pid; "": the only one.
  bool json = false;  ///< Of `status`.
};

/// Adds them to the program.
void describe_looks(CLI::App& program, LookCommand& look);

}  // namespace corro::app
