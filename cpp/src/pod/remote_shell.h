// `corro rsh`, also under the name ssh: a command on another host of the job.
//
//   waiting    the head is dialled, and asked for the host; it answers once an agent is there
//   running    the agent has started the command; input, output and signals pass
//   draining   the command has ended: the rest of its output is read, as ssh does, then the agent
//              is let go
//
// It is a commander of agent/ like the launcher, for one process. It looks every second, so that
// each side knows of the other.
#pragma once

#include <string>

#include "pod/settings.h"
#include "pod/ssh_options.h"

namespace corro::pod {

/// The exit status of ssh for failures of its own.
inline constexpr int kShellFailure = 255;

/// Runs it to its end; returns the command's status, 128 + signal if one has ended it,
/// kShellFailure with a line on stderr if it was not started, or it is not known how it has ended.
/// The calling process has no threads.
[[nodiscard]] int run_remote_shell(const PodSettings& settings, const SshRequest& request);

}  // namespace corro::pod
