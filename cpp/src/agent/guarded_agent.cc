#include "agent/guarded_agent.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "agent/agent.h"
#include "agent/processes.h"
#include "io/pipe.h"

namespace corro::agent {

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
  int status = 0;
  while (waitpid(agent, &status, 0) < 0 && errno == EINTR) {
  }
  (void)kill_descendants(kKillPatience);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace corro::agent
