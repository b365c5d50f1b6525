#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

#include "agent/guarded_agent.h"
#include "app/commands.h"

namespace corro::app {

int agent_command() {
  if (isatty(STDIN_FILENO) != 0) {
    complain("corro agent: started by corro run on another host; there is nothing to type here");
    return 2;
  }
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&blocked, signal);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_NAME, "rank-keeper");
  agent::MessagePipe commander(io::Fd(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)),
                               io::Fd(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)));
  // Nothing else writes between the messages, and no rank reads them.
  const io::Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  dup2(null.get(), STDIN_FILENO);
  dup2(null.get(), STDOUT_FILENO);
  commander.send_preamble();
  return agent::run_guarded_agent(agent::Commander(std::move(commander)), before, CORRO_VERSION);
}

}  // namespace corro::app
