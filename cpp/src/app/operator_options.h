// The command line of `corro operator`.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace corro::app {

struct OperatorCommand {
  std::string kubeconfig;   ///< File; "": in a pod its service account, else as kubectl.
  std::string context;      ///< "": the file's current one.
  std::string space;        ///< Namespace to work in; "": all.
  std::string lease_space;  ///< Namespace of the Lease; "": the operator's own.
  int workers = 8;
  double qps = 200;
  double burst = 400;
  std::string listen = "127.0.0.1:8080";  ///< "": no pages.
  std::string metrics_token;              ///< File; "": metrics on loopback alone.
  std::string agent_image;                ///< "": corro:VERSION.
  std::string gang_scheduler;
  std::string cluster_domain;
  std::string mpijob = "all";  ///< Or "managed".
  int units_per_node = 1;
};

struct OperatorRequest {
  std::string text;  ///< Help for stdout; "": the operator is to run.
  OperatorCommand command;
};

/// Reads the arguments after the program's name, which begin with "operator". INVALID_ARGUMENT in
/// one line for a mistake.
[[nodiscard]] Result<OperatorRequest> parse_operator_line(
    const std::vector<std::string>& arguments);

/// Adds `operator` to the program; CLI11 checks ranges. Borrows `command`.
void describe_operator(CLI::App& program, OperatorCommand& command);

}  // namespace corro::app
