#include "agent/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <termios.h>
#include <unistd.h>
#include <cstdlib>

#include <cerrno>

#include "io/pipe.h"

namespace corro::agent {
namespace {

/// Two ends: `ours` is read by the launcher, `theirs` is the worker's stdout or stderr.
struct Channel {
  io::Fd ours;
  io::Fd theirs;
};

Result<Channel> make_pipe() {
  CORRO_ASSIGN(io::Pipe pipe, io::make_pipe());
  // Only our end: the worker's blocks as it expects.
  fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  return Channel{.ours = std::move(pipe.read), .theirs = std::move(pipe.write)};
}

Result<Channel> make_terminal(const winsize& size) {
  Channel channel{.ours = io::Fd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)), .theirs = {}};
  const int master = channel.ours.get();
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
    return status_from_errno("opening a pseudo terminal", errno);
  }
  channel.theirs.reset(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!channel.theirs.valid()) return status_from_errno("opening a pseudo terminal", errno);
  termios settings{};
  tcgetattr(channel.theirs.get(), &settings);
  cfmakeraw(&settings);  // the real terminal turns \n into \r\n, once
  tcsetattr(channel.theirs.get(), TCSANOW, &settings);
  ioctl(master, TIOCSWINSZ, &size);
  fcntl(master, F_SETFL, O_NONBLOCK);
  return channel;
}

/// What the worker reads: `theirs` is its stdin, invalid if it has the caller's.
Result<Channel> make_input(StandardInput input) {
  Channel channel;
  if (input == StandardInput::kNone) channel.theirs.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (input != StandardInput::kSent) return channel;
  CORRO_ASSIGN(Channel pipe, make_pipe());
  std::swap(pipe.ours, pipe.theirs);
  fcntl(pipe.ours.get(), F_SETFL, O_NONBLOCK);
  fcntl(pipe.theirs.get(), F_SETFL, 0);
  return pipe;
}

/// A pseudo terminal if one is wanted and there is one, else a pipe.
Result<Channel> make_channel(const std::optional<winsize>& terminal) {
  if (terminal) {
    auto channel = make_terminal(*terminal);
    if (channel.ok()) return channel;
  }
  return make_pipe();
}

/// What the child needs, prepared before fork(): nothing may be allocated after it.
struct Prepared {
  std::vector<char*> argv;
  std::vector<std::string> assignments;
  std::vector<char*> envp;
  cpu_set_t processors{};
  bool bound = false;
};

Prepared prepare(const WorkerSpec& spec, int result) {
  Prepared prepared;
  for (const std::string& argument : spec.arguments) {
    prepared.argv.push_back(const_cast<char*>(argument.c_str()));
  }
  prepared.argv.push_back(nullptr);
  for (const auto& [name, value] : spec.environment) {
    prepared.assignments.push_back(name + "=" + value);
  }
  if (spec.call >= 0)
    prepared.assignments.push_back(fmt::format("CORRO_CALL={},{}", spec.call, result));
  for (std::string& assignment : prepared.assignments) prepared.envp.push_back(assignment.data());
  prepared.envp.push_back(nullptr);
  CPU_ZERO(&prepared.processors);
  for (const int cpu : spec.processors) {
    if (cpu < CPU_SETSIZE) CPU_SET(static_cast<size_t>(cpu), &prepared.processors);
    prepared.bound = prepared.bound || cpu < CPU_SETSIZE;
  }
  return prepared;
}

/// Everything between fork and exec. Only calls that are safe there.
[[noreturn]] void become_worker(const WorkerSpec& spec, const Prepared& prepared, pid_t launcher,
                                int out, int err, int in, int result, int report,
                                const sigset_t& signal_mask) {
  constexpr int kLauncherGone = 137;
  constexpr int kNotExecuted = 127;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(kLauncherGone);  // it died before the line above
  if (in >= 0) dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (!spec.directory.empty() && chdir(spec.directory.c_str()) != 0) {
    const int error = -errno;
    (void)!write(report, &error, sizeof(error));
    _exit(kNotExecuted);
  }
  // Their numbers are in the environment.
  if (spec.call >= 0) fcntl(spec.call, F_SETFD, 0), fcntl(result, F_SETFD, 0);
  if (prepared.bound) sched_setaffinity(0, sizeof(cpu_set_t), &prepared.processors);
  // A shell ignores the last two for what it starts in the background, against the terminal's keys:
  // a rank gets only what the launcher forwards.
  for (const int restored : {SIGPIPE, SIGTTIN, SIGTTOU, SIGINT, SIGQUIT}) signal(restored, SIG_DFL);
  sigprocmask(SIG_SETMASK, &signal_mask, nullptr);
  execve(spec.program.c_str(), prepared.argv.data(), prepared.envp.data());
  const int error = errno;
  (void)!write(report, &error, sizeof(error));
  _exit(kNotExecuted);
}

}  // namespace

Result<Worker> start_worker(const WorkerSpec& spec, const sigset_t& signal_mask) {
  CORRO_ASSIGN(Channel out, make_channel(spec.out_terminal));
  CORRO_ASSIGN(Channel err, make_channel(spec.err_terminal));
  CORRO_ASSIGN(Channel report, make_pipe());
  CORRO_ASSIGN(Channel in, make_input(spec.input));
  Channel result;
  if (spec.call >= 0) {
    CORRO_ASSIGN(result, make_pipe());
  }
  const Prepared prepared = prepare(spec, result.theirs.get());
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return status_from_errno("starting a process", errno);
  if (pid == 0) {
    become_worker(spec, prepared, launcher, out.theirs.get(), err.theirs.get(), in.theirs.get(),
                  result.theirs.get(), report.theirs.get(), signal_mask);
  }
  report.theirs.reset();
  fcntl(report.ours.get(), F_SETFL, 0);
  int error = 0;
  if (read(report.ours.get(), &error, sizeof(error)) == sizeof(error)) {
    return status_from_errno(error < 0 ? spec.directory : spec.program, std::abs(error));
  }
  return Worker{.pid = pid,
                .out = std::move(out.ours),
                .err = std::move(err.ours),
                .in = std::move(in.ours),
                .result = std::move(result.ours)};
}

}  // namespace corro::agent
