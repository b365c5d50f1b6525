#include "pod/child.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>

#include "base/variables.h"
#include "io/fd.h"
#include "io/pipe.h"

namespace corro::pod {

Result<pid_t> start_child(std::vector<std::string> words, const sigset_t& mask) {
  constexpr int kNotExecuted = 127;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  CORRO_ASSIGN(io::Pipe report, io::make_pipe());
  const pid_t pid = fork();
  if (pid < 0) return status_from_errno("starting a process", errno);
  if (pid == 0) {
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    execvp(arguments[0], arguments.data());
    const int error = errno;
    (void)!write(report.write.get(), &error, sizeof(error));
    _exit(kNotExecuted);
  }
  report.write.reset();
  int error = 0;
  if (read(report.read.get(), &error, sizeof(error)) != sizeof(error)) return pid;
  waitpid(pid, nullptr, 0);
  return status_from_errno(words[0], error);
}

std::string find_on_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  std::istringstream path(value_of(read_variables(), "PATH"));
  for (std::string folder; std::getline(path, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return name;
}

int shell_status(int status) {
  constexpr int kSignal = 128;
  return WIFSIGNALED(status) ? kSignal + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace corro::pod
