#include "agent/guarded_agent.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "agent/agent.h"
#include "agent/processes.h"
#include "io/pipe.h"

namespace corro::agent {
namespace {

/// Passes SIGTERM on, which people and clusters send to the process that they have started. Returns
/// how the agent has ended, as waitpid does.
int wait_for(pid_t agent) {
  sigset_t heard;
  sigemptyset(&heard);
  for (const int signal : {SIGCHLD, SIGTERM}) sigaddset(&heard, signal);
  int status = 0;
  while (waitpid(agent, &status, WNOHANG) != agent) {
    if (sigwaitinfo(&heard, nullptr) == SIGTERM) kill(agent, SIGTERM);
  }
  return status;
}

}  // namespace

int run_guarded_agent(Commander commander, const sigset_t& worker_mask,
                      const std::string& version) {
  adopt_orphans();
  auto pipe = io::make_pipe();
  if (!pipe.ok()) return 1;
  const pid_t agent = fork();
  if (agent < 0) return 1;
  if (agent == 0) {
    pipe->write.reset();
    setpgid(0, 0);
    adopt_orphans();  // not inherited
    // _exit() destroys nothing: the agent, which removes what is half done, is destroyed before it.
    _exit(run_agent(std::move(commander), worker_mask, version, std::move(pipe->read)));
  }
  commander.close();
  const int status = wait_for(agent);
  (void)kill_descendants(kKillPatience);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace corro::agent
