// Runs a credential plug-in.
#pragma once

#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "kube/client/kubeconfig.h"

namespace corro::kube {

/// Starts the program with its variables and KUBERNETES_EXEC_INFO = `info`, without input, and
/// returns what it prints. Blocks until it has ended, at most `patience`; then, and once `stop` is
/// requested, the program and what it started in its process group are killed. UNAUTHENTICATED with
/// the last line of its errors, or with the install hint if there is no such program;
/// RESOURCE_EXHAUSTED if it prints more than kMostExecOutputBytes; DEADLINE_EXCEEDED; CANCELLED.
/// Thread-safe. Reaps this child alone: nobody else in the process may wait for any child.
[[nodiscard]] Result<std::string> run_plugin(const ExecPlugin& plugin, const std::string& info,
                                             Duration patience, const std::stop_token& stop);

}  // namespace corro::kube
