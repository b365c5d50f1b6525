#include "launch/shell_program.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/variables.h"

namespace corro::launch {
namespace {

constexpr size_t kMostTaken = size_t{1} << 20U;

/// False at the end of the stream. What is above the limit is dropped.
bool read_on(int fd, std::string& text) {
  std::array<char, 4096> buffer{};
  for (size_t taken = 0; taken < kMostTaken;) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count <= 0) return count < 0 && errno == EAGAIN;
    taken += static_cast<size_t>(count);
    if (text.size() < kMostTaken) text.append(buffer.data(), static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<ShellProgram>> ShellProgram::start(const std::string& command,
                                                          agent::StandardInput input,
                                                          const sigset_t& mask) {
  const agent::WorkerSpec spec{.program = "/bin/sh",
                               .arguments = {"sh", "-c", command},
                               .environment = read_variables(),
                               .processors = {},
                               .input = input,
                               .out_terminal = std::nullopt,
                               .err_terminal = std::nullopt};
  CORRO_ASSIGN(agent::Worker program, agent::start_worker(spec, mask));
  return std::unique_ptr<ShellProgram>(new ShellProgram(std::move(program)));
}

/// Its children are in its process group.
ShellProgram::~ShellProgram() {
  if (reaped_) return;
  (void)kill(-program_.pid, SIGKILL);
  (void)waitpid(program_.pid, nullptr, 0);
}

std::optional<int> ShellProgram::ended() {
  int status = 0;
  if (reaped_ || waitpid(program_.pid, &status, WNOHANG) != program_.pid) return std::nullopt;
  reaped_ = true;
  return status;
}

std::optional<int> ShellProgram::status() const {
  siginfo_t end{};
  const auto pid = static_cast<id_t>(program_.pid);
  if (waitid(P_PID, pid, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0)
    return std::nullopt;
  return end.si_code == CLD_EXITED ? W_EXITCODE(end.si_status, 0) : end.si_status;
}

bool ShellProgram::read() {
  const bool goes_on = read_on(program_.out.get(), printed);
  (void)read_on(program_.err.get(), said_);  // Last: then it has all of one that has ended.
  return goes_on;
}

std::string ShellProgram::last_word() const {
  const size_t end = said_.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::string text = said_.substr(0, end + 1);
  return text.substr(text.rfind('\n') + 1);
}

std::string describe_end(int status, const std::string& last_word) {
  const std::string how = WIFEXITED(status) ? fmt::format("status {}", WEXITSTATUS(status))
                                            : fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("it ended with {}{}{}", how, last_word.empty() ? "" : ": ", last_word);
}

}  // namespace corro::launch
