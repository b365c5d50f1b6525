// The options of `corro checkpoint`, as CLI11 knows them. Two programs use this description:
// `corro` for help and completion, and corro-checkpoint to read its arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace corro::app {

struct CheckpointCommand {
  std::string action;  ///< "ls", "verify" or "show".
  std::string folder;
  std::optional<uint64_t> step;
  bool json = false;
};

struct CheckpointRequest {
  std::string text;  ///< Help for stdout; "": the command is to run.
  CheckpointCommand command;
};

/// Reads the arguments after the program's name, which begin with "checkpoint". INVALID_ARGUMENT
/// in one line for a mistake.
[[nodiscard]] Result<CheckpointRequest> parse_checkpoint_line(
    const std::vector<std::string>& arguments);

/// Adds `checkpoint` to the program. Borrows `command`.
void describe_checkpoint(CLI::App& program, CheckpointCommand& command);

}  // namespace corro::app
