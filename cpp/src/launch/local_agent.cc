#include "launch/local_agent.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "agent/agent.h"
#include "agent/processes.h"

namespace corro::launch {

Result<LocalAgent> start_local_agent(const sigset_t& worker_mask, const std::string& version) {
  agent::adopt_orphans();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return status_from_errno("connecting the agent", errno);
  io::Fd ours(ends[0]);
  io::Fd theirs(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return status_from_errno("starting a process", errno);
  if (pid == 0) {
    ours.reset();
    setpgid(0, 0);
    // Not "corro": killall -9 corro then ends the launcher, and what is left ends the ranks.
    prctl(PR_SET_NAME, "rank-keeper");
    agent::adopt_orphans();  // not inherited
    _exit(agent::run_agent(agent::MessagePipe(std::move(theirs)), worker_mask, version));
  }
  return LocalAgent{.pid = pid, .pipe = agent::MessagePipe(std::move(ours))};
}

}  // namespace corro::launch
