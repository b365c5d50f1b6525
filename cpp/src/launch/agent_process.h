// Agents as processes that the launcher starts.
//
// The launcher is the process that was started; keys pressed at the terminal reach it alone. The
// agent of its own host, in a process group of its own, is the parent of the ranks. Each notices
// the other's death and adopts the orphans of those below it (PR_SET_CHILD_SUBREAPER), so one of
// them is always left to end whatever the ranks have started, also after kill -9 of the other.
//
// An agent of another host is `corro agent` behind a remote shell: ssh as the user's own would do
// it, but that it asks nothing and forwards no agent of keys. What it writes to stderr says why
// there is no agent.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/message_pipe.h"
#include "base/status.h"

namespace corro::launch {

struct AgentProcess {
  pid_t pid = 0;  ///< Of the agent, or of the remote shell.
  agent::MessagePipe pipe;
  io::Fd errors;  ///< Stderr of the remote shell, non-blocking; of the own host's agent none.
};

/// Forks the agent of this host. The calling process has no threads, SIGCHLD is blocked and SIGPIPE
/// ignored. `worker_mask`: the ranks' signal mask.
[[nodiscard]] Result<AgentProcess> start_own_agent(const sigset_t& worker_mask,
                                                   const std::string& version);

/// The remote shell's words before those of the host: `rsh` as the user gave it, or ssh's.
[[nodiscard]] std::vector<std::string> remote_shell(const std::string& rsh);

/// Starts the remote shell, which starts `corro agent` there; `corro`: the program's path.
/// `mask`: the shell's signal mask. NOT_FOUND if there is no such shell.
[[nodiscard]] Result<AgentProcess> start_remote_agent(const std::vector<std::string>& shell,
                                                      const std::string& host,
                                                      const std::string& corro,
                                                      const sigset_t& mask);

}  // namespace corro::launch
