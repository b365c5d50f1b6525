// The commands that are about a running job: `corro status`, `corro top`, `corro stacks`, `corro
// trace` and `corro servers`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace corro::app {

/// What is typed for one of them.
struct LookCommand {
  std::string job;    ///< Its id, or its launcher's pid; "": the only one.
  bool json = false;  ///< Of `status`.
  /// Of `servers`: so many more, or the one that is to leave; one of them is given.
  std::optional<unsigned> add = {};
  std::optional<unsigned> remove = {};
  // Of `trace`:
  uint32_t steps = 1;
  std::string output = "trace.json";
};

/// Adds them to the program.
void describe_looks(CLI::App& program, LookCommand& look);

}  // namespace corro::app
