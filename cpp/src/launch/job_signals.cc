#include "launch/job_signals.h"

#include "io/signals.h"

namespace corro::launch {
namespace {

bool is_ignored(int signal) {
  struct sigaction action{};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

JobSignals block_signals() {
  JobSignals signals{.heard = io::forwarded_signals(), .before = {}};
  if (is_ignored(SIGHUP)) sigdelset(&signals.heard, SIGHUP);  // nohup: the ranks ignore it as well
  sigaddset(&signals.heard, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals.heard, &signals.before);
  signal(SIGCHLD, SIG_DFL);  // whoever started us may have ignored it
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTTIN, SIG_IGN);  // a read in the background fails instead
  return signals;
}

}  // namespace corro::launch
