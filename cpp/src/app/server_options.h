// `corro server`, as CLI11 knows it: `corro` for its help, and corro-server to read its arguments.
// Agents start it: lists of commands leave it out.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace corro::app {

/// All that it has to know is in its environment.
struct ServerCommand {};

struct ServerRequest {
  std::string text;  ///< Help for stdout; "": the command is to run.
  ServerCommand command;
};

/// Reads the arguments after the program's name, which begin with "server". INVALID_ARGUMENT in one
/// line for a mistake.
[[nodiscard]] Result<ServerRequest> parse_server_line(const std::vector<std::string>& arguments);

/// Adds `server` to the program.
void describe_server(CLI::App& program);

}  // namespace corro::app
