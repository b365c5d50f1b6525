#include "agent/agent_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <sstream>

#include "agent/agent.h"
#include "agent/processes.h"
#include "base/quoted.h"
#include "io/pipe.h"

namespace corro::agent {
namespace {

constexpr int kNotExecuted = 127;  ///< A shell's status if there is no such program.

/// Between fork and exec.
[[noreturn]] void become_shell(std::vector<char*>& arguments, int in, int out, int err, int report,
                               const sigset_t& mask) {
  setpgid(0, 0);  // Ctrl-C is for the launcher, which tells the agents.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const int restored : {SIGPIPE, SIGCHLD, SIGINT, SIGQUIT}) signal(restored, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  (void)!write(report, &error, sizeof(error));
  _exit(kNotExecuted);
}

/// The last line that says anything, without what would change a terminal.
std::string last_line(const std::string& text) {
  std::string last;
  std::string line;
  for (const char c : text + "\n") {
    if (c == '\n') {
      if (line.find_first_not_of(' ') != std::string::npos) last = line;
      line.clear();
    } else if (static_cast<unsigned char>(c) >= ' ') {
      line += c;
    }
  }
  return last;
}

/// What to do where ssh would have asked.
std::string_view advice_about(std::string_view said) {
  if (said.find("Permission denied") != std::string_view::npos)
    return "; nobody can answer ssh here: set up a key, as ssh-copy-id does";
  if (said.find("HOST IDENTIFICATION HAS CHANGED") != std::string_view::npos)
    return "; its key is another one than before: find out why, then ssh-keygen -R removes the old";
  if (said.find("Host key verification failed") != std::string_view::npos)
    return "; connect once by hand, and look at its key";
  return "";
}

}  // namespace

Result<AgentProcess> AgentProcess::start_here(const sigset_t& worker_mask,
                                              const std::string& version) {
  adopt_orphans();
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
    adopt_orphans();  // not inherited
    _exit(run_agent(Commander(MessagePipe(std::move(theirs))), worker_mask, version));
  }
  return AgentProcess(pid, MessagePipe(std::move(ours)), {}, "");
}

std::vector<std::string> remote_shell(const std::string& rsh) {
  if (rsh.empty()) {
    return {"ssh", "-T", "-oBatchMode=yes", "-oForwardAgent=no", "-oForwardX11=no",
            // A connection that is shared already is used; one made here would end with the job.
            "-oControlMaster=no", "-oConnectTimeout=10"};
  }
  std::vector<std::string> words;
  std::istringstream text(rsh);
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> words_for(std::vector<std::string> shell, const std::string& host,
                                   const std::string& command) {
  if (shell[0] != "srun" && !shell[0].ends_with("/srun")) {
    shell.push_back(host);
    shell.push_back(command);
    return shell;
  }
  for (const char* option :
       {"--nodes=1", "--ntasks=1", "--overlap", "--unbuffered", "--cpu-bind=none", "--mpi=none"})
    shell.emplace_back(option);
  for (const std::string& word :
       {"--nodelist=" + host, std::string("sh"), std::string("-c"), command})
    shell.push_back(word);
  return shell;
}

Result<AgentProcess> AgentProcess::start_there(const std::vector<std::string>& shell,
                                               const std::string& host, const std::string& corro,
                                               const sigset_t& mask) {
  std::vector<std::string> words = words_for(shell, host, "exec " + quoted(corro) + " agent");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  CORRO_ASSIGN(io::Pipe to, io::make_pipe());
  CORRO_ASSIGN(io::Pipe from, io::make_pipe());
  CORRO_ASSIGN(io::Pipe errors, io::make_pipe());
  CORRO_ASSIGN(io::Pipe report, io::make_pipe());
  const pid_t pid = fork();
  if (pid < 0) return status_from_errno("starting a process", errno);
  if (pid == 0)
    become_shell(arguments, to.read.get(), from.write.get(), errors.write.get(), report.write.get(),
                 mask);
  report.write.reset();
  int error = 0;
  if (read(report.read.get(), &error, sizeof(error)) == sizeof(error))
    return status_from_errno(words[0], error);
  fcntl(errors.read.get(), F_SETFL, O_NONBLOCK);
  AgentProcess process(pid, MessagePipe(std::move(from.read), std::move(to.write)),
                       std::move(errors.read), corro);
  process.pipe_.expect_preamble();
  return process;
}

Status AgentProcess::watch(io::Loop& loop, const io::Loop::Handler& handler) {
  CORRO_TRY(pipe_.watch(loop, handler));
  if (!remote()) return {};
  return loop.watch(errors_.get(), EPOLLIN, [this, &loop] {
    if (!take_errors()) loop.forget(errors_.get());
  });
}

void AgentProcess::unwatch(io::Loop& loop) {
  pipe_.unwatch(loop);
  if (remote()) loop.forget(errors_.get());
}

/// False once nothing more is written.
bool AgentProcess::take_errors() {
  constexpr size_t kKept = size_t{8} << 10U;
  std::array<char, 4096> buffer{};
  ssize_t count = 0;
  while ((count = read(errors_.get(), buffer.data(), buffer.size())) > 0) {
    said_.append(buffer.data(), static_cast<size_t>(count));
    if (said_.size() > kKept) said_.erase(0, said_.size() - kKept);
  }
  return count < 0 && (errno == EAGAIN || errno == EINTR);
}

void AgentProcess::forget_greetings() {
  if (remote()) (void)take_errors();
  said_.clear();
}

std::string AgentProcess::why() {
  if (remote()) (void)take_errors();
  const std::string said = last_line(said_);
  siginfo_t end{};
  if (!status_ && waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG) == 0 &&
      end.si_pid != 0)
    status_ = end.si_code == CLD_EXITED ? W_EXITCODE(end.si_status, 0) : end.si_status;
  const bool not_found = status_ && WIFEXITED(*status_) && WEXITSTATUS(*status_) == kNotExecuted;
  if (said.find("not found") != std::string::npos ||
      said.find("No such file") != std::string::npos || not_found) {
    return fmt::format("no corro at {} there; install the same environment at the same place",
                       corro_);
  }
  if (said.empty()) return "its agent has ended without a word";
  return said + std::string(advice_about(said_));
}

int AgentProcess::end(Duration patience) {
  pipe_.close();
  const Time until = monotonic_now() + patience;
  int status = 0;
  while (!status_) {
    const pid_t reaped = waitpid(pid_, &status, WNOHANG);
    if (reaped != 0) {
      status_ = status;
      break;
    }
    constexpr int kPauseMs = 1;
    poll(nullptr, 0, kPauseMs);
    if (monotonic_now() >= until) kill(pid_, SIGKILL);
  }
  return *status_;
}

}  // namespace corro::agent
