// An agent on another host than its commander's, and the process that guards it.
#pragma once

#include <signal.h>

#include <string>

#include "agent/commander.h"

namespace corro::agent {

/// As run_agent(), in a process of its own, below this one. Each of both ends everything when the
/// other is killed.
[[nodiscard]] int run_guarded_agent(Commander commander, const sigset_t& worker_mask,
                                    const std::string& version);

}  // namespace corro::agent
