#include "pod/session.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/agent.h"
#include "agent/processes.h"
#include "agent/silence.h"

namespace corro::pod {
namespace {

/// The connection, once the head has joined it with that of the remote shell.
Result<agent::MessagePipe> meet(const HeadLink::Options& options) {
  CORRO_ASSIGN(io::Loop loop, io::Loop::create());
  HeadLink link(options, loop);
  const Time until = monotonic_now() + agent::kSilence;
  for (Time now = monotonic_now(); now < until; now = monotonic_now()) {
    link.tick(now);
    loop.turn(std::min(until, link.next_timer()));
    while (const auto message = link.take()) {
      if (std::holds_alternative<agent::Ready>(message->body)) return link.release();
      if (const auto* refused = std::get_if<agent::Refused>(&message->body))
        return Status(refused->code, refused->why);
    }
  }
  return link.why().ok() ? Status(Code::kDeadlineExceeded, "no answer") : link.why();
}

[[noreturn]] void run_session(const HeadLink::Options& options, io::Fd guard,
                              const sigset_t& before, const std::string& version) {
  constexpr int kNotMet = 1;
  setpgid(0, 0);
  prctl(PR_SET_NAME, "corro-session");
  agent::adopt_orphans();  // What detaches goes to the pod's agent at the end.
  auto pipe = meet(options);
  if (!pipe.ok()) _exit(kNotMet);
  _exit(agent::run_agent(agent::Commander(std::move(*pipe)), before, version, std::move(guard)));
}

}  // namespace

Result<pid_t> start_session(const HeadLink::Options& link, const io::Fd& guard,
                            const sigset_t& before, const std::string& version,
                            const std::function<void()>& forget) {
  const pid_t pid = fork();
  if (pid < 0) return status_from_errno("starting a process", errno);
  if (pid > 0) return pid;
  forget();
  run_session(link, io::Fd(fcntl(guard.get(), F_DUPFD_CLOEXEC, 3)), before, version);
}

}  // namespace corro::pod
