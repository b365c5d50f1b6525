// The agent of this host: a process behind the one that the user sees.
//
// The launcher is the process that was started; keys pressed at the terminal reach it alone. Its
// agent, in a process group of its own, is the parent of the ranks. Each notices the other's death
// and adopts the orphans of those below it (PR_SET_CHILD_SUBREAPER), so one of them is always left
// to end whatever the ranks have started, also after kill -9 of the other.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>

#include "agent/message_pipe.h"
#include "base/status.h"

namespace corro::launch {

struct LocalAgent {
  pid_t pid = 0;
  agent::MessagePipe pipe;
};

/// Forks it. The calling process has no threads, SIGCHLD is blocked and SIGPIPE ignored.
/// `worker_mask`: the ranks' signal mask.
[[nodiscard]] Result<LocalAgent> start_local_agent(const sigset_t& worker_mask,
                                                   const std::string& version);

}  // namespace corro::launch
