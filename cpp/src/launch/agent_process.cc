#include "launch/agent_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>

#include "agent/agent.h"
#include "agent/processes.h"
#include "launch/command.h"

namespace corro::launch {
namespace {

struct Pipe {
  io::Fd read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return status_from_errno("pipe", errno);
  return Pipe{.read = io::Fd(ends[0]), .write = io::Fd(ends[1])};
}

/// Between fork and exec.
[[noreturn]] void become_shell(std::vector<char*>& arguments, int in, int out, int err, int report,
                               const sigset_t& mask) {
  constexpr int kNotExecuted = 127;
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

}  // namespace

Result<AgentProcess> start_own_agent(const sigset_t& worker_mask, const std::string& version) {
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
  return AgentProcess{.pid = pid, .pipe = agent::MessagePipe(std::move(ours)), .errors = {}};
}

std::vector<std::string> remote_shell(const std::string& rsh) {
  if (rsh.empty()) {
    return {"ssh",
            "-T",
            "-oBatchMode=yes",
            "-oForwardAgent=no",
            "-oForwardX11=no",
            "-oConnectTimeout=10"};
  }
  std::vector<std::string> words;
  std::istringstream text(rsh);
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

Result<AgentProcess> start_remote_agent(const std::vector<std::string>& shell,
                                        const std::string& host, const std::string& corro,
                                        const sigset_t& mask) {
  std::vector<std::string> words = shell;
  words.push_back(host);
  words.push_back("exec " + quoted(corro) + " agent");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  CORRO_ASSIGN(Pipe to, make_pipe());
  CORRO_ASSIGN(Pipe from, make_pipe());
  CORRO_ASSIGN(Pipe errors, make_pipe());
  CORRO_ASSIGN(Pipe report, make_pipe());
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
  AgentProcess process{.pid = pid,
                       .pipe = agent::MessagePipe(std::move(from.read), std::move(to.write)),
                       .errors = std::move(errors.read)};
  process.pipe.expect_preamble();
  return process;
}

}  // namespace corro::launch
