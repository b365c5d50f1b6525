// Agents as processes below the one that starts them.
//
// The launcher is the process that was started; keys pressed at the terminal reach it alone. The
// agent of its own host, in a process group of its own, is the parent of the ranks. Each notices
// the other's death and adopts the orphans of those below it (PR_SET_CHILD_SUBREAPER), so one of
// them is always left to end whatever the ranks have started, also after kill -9 of the other.
//
// An agent of another host is `corro agent` behind a remote shell: ssh as the user's own would do
// it, but that it asks nothing and forwards no agent of keys. What it writes to stderr says why
// there is no agent. The launcher starts such agents, and agents start more (branches.h).
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/message_pipe.h"
#include "base/status.h"

namespace corro::agent {

/// Loop-confined.
class AgentProcess {
 public:
  /// Forks the agent of this host. The calling process has no threads, SIGCHLD is blocked and
  /// SIGPIPE ignored. `worker_mask`: the ranks' signal mask.
  [[nodiscard]] static Result<AgentProcess> start_here(const sigset_t& worker_mask,
                                                       const std::string& version);
  /// Starts the remote shell, which starts `corro agent` on `host`; `corro`: the program's path
  /// there. `mask`: the shell's signal mask. NOT_FOUND if there is no such shell.
  [[nodiscard]] static Result<AgentProcess> start_there(const std::vector<std::string>& shell,
                                                        const std::string& host,
                                                        const std::string& corro,
                                                        const sigset_t& mask);

  [[nodiscard]] bool remote() const { return errors_.valid(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] MessagePipe& pipe() { return pipe_; }

  /// Has the handler called for its pipe. It does not move from now on, until unwatch().
  Status watch(io::Loop& loop, const io::Loop::Handler& handler);
  void unwatch(io::Loop& loop);
  /// The agent is there: what the shell has said until then, a banner or a warning, is no cause.
  void forget_greetings();
  /// Why there is no agent, in one line: what the remote shell has said last.
  [[nodiscard]] std::string why();

  /// Others have reaped it.
  void set_ended(int status) { status_ = status; }
  [[nodiscard]] bool reaped() const { return status_.has_value(); }
  /// The end of its process; waits at most `patience`, then kills it. Returns it as from waitpid.
  int end(Duration patience);

 private:
  AgentProcess(pid_t pid, MessagePipe pipe, io::Fd errors, std::string corro)
      : pid_(pid), pipe_(std::move(pipe)), errors_(std::move(errors)), corro_(std::move(corro)) {}
  bool take_errors();

  pid_t pid_;  ///< Of the agent, or of the remote shell.
  MessagePipe pipe_;
  io::Fd errors_;  ///< Stderr of the remote shell, non-blocking; of the own host's agent none.
  std::string corro_;
  std::string said_;  ///< The end of the remote shell's stderr.
  std::optional<int> status_;
};

/// The remote shell's words before those of the host: `rsh` as the user gave it, or ssh's.
[[nodiscard]] std::vector<std::string> remote_shell(const std::string& rsh);

/// What runs a command line on a host by that shell. srun, which knows hosts by an option and no
/// command lines, gets what it understands.
[[nodiscard]] std::vector<std::string> words_for(std::vector<std::string> shell,
                                                 const std::string& host,
                                                 const std::string& command);

}  // namespace corro::agent
