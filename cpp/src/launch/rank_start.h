// What the agent is told to start a rank.
#pragma once

#include "agent/messages.h"
#include "launch/plan.h"

namespace corro::launch {

/// Asks for a terminal where the launcher's own streams are one and show this rank as it is.
[[nodiscard]] agent::Start start_of(const LaunchPlan& plan, int rank, const wire::Secret& secret);

/// The size of the terminal behind `fd`; nothing if it is none.
[[nodiscard]] std::optional<winsize> terminal_size(int fd);

}  // namespace corro::launch
