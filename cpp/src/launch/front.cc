#include "launch/front.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>

#include "agent/processes.h"
#include "base/status.h"
#include "diagnosis/exit_status.h"
#include "io/signals.h"

namespace corro::launch {
namespace {

void say(const std::string& line) { (void)!write(STDERR_FILENO, line.data(), line.size()); }

/// Passes one signal on; stops itself too for what stops a job at the terminal.
void pass_on(int signal, int to_supervisor) {
  const auto byte = static_cast<uint8_t>(signal);
  (void)!write(to_supervisor, &byte, sizeof(byte));
  if (signal == SIGTSTP) kill(getpid(), SIGSTOP);
}

/// The status of the supervisor if it has ended; -1 while it runs.
int poll_supervisor(pid_t supervisor) {
  int status = 0;
  pid_t pid = 0;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid != supervisor) continue;  // an adopted orphan
    agent::kill_descendants(
        std::chrono::seconds(2));  // it has left none, unless it did not end as it should
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    say(
        fmt::format("corro: the process that watched the ranks was killed by {}; every rank was "
                    "stopped\n",
                    io::signal_name(WTERMSIG(status))));
    return diagnosis::kSignalExit + WTERMSIG(status);
  }
  return -1;
}

bool is_ignored(int signal) {
  struct sigaction action{};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

int stand_in_front(pid_t supervisor, int to_supervisor, const sigset_t& waited_for) {
  while (true) {
    const int status = poll_supervisor(supervisor);
    if (status >= 0) return status;
    const int signal = sigwaitinfo(&waited_for, nullptr);
    if (signal > 0 && signal != SIGCHLD) pass_on(signal, to_supervisor);
  }
}

}  // namespace

int run_behind_front(const std::function<int(const FrontLink&)>& supervise) {
  FrontLink link{};
  sigset_t waited_for = io::forwarded_signals();
  if (is_ignored(SIGHUP)) sigdelset(&waited_for, SIGHUP);  // nohup: the ranks ignore it as well
  sigaddset(&waited_for, SIGCHLD);
  sigprocmask(SIG_BLOCK, &waited_for, &link.signal_mask);
  signal(SIGCHLD, SIG_DFL);  // whoever started us may have ignored it
  signal(SIGPIPE, SIG_IGN);
  agent::adopt_orphans();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    say("corro: no pipe to the supervisor: too many open files\n");
    return 1;
  }
  link.signals = ends[0];
  const pid_t supervisor = fork();
  if (supervisor < 0) {
    say(fmt::format("corro: {}\n", status_from_errno("starting a process", errno).message()));
    return 1;
  }
  if (supervisor == 0) {
    close(ends[1]);
    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN);  // it writes to the terminal from the background
    // Not "corro": killall -9 corro then ends the front, and what is left ends the ranks.
    prctl(PR_SET_NAME, "rank-keeper");
    agent::adopt_orphans();  // not inherited
    _exit(supervise(link));
  }
  close(ends[0]);
  return stand_in_front(supervisor, ends[1], waited_for);
}

}  // namespace corro::launch
