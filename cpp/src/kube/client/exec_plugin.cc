#include "kube/client/exec_plugin.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/variables.h"
#include "io/fd.h"
#include "io/pipe.h"
#include "io/process.h"
#include "kube/client/exec_credential.h"

namespace corro::kube {
namespace {

std::vector<char*> pointers_of(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Starts it as the leader of a process group, with signals as a fresh process has them.
int spawn(const ExecPlugin& plugin, const std::string& info, int output, int errors, pid_t& pid) {
  Variables variables = read_variables();
  for (const auto& [name, value] : plugin.variables) variables[name] = value;
  variables["KUBERNETES_EXEC_INFO"] = info;
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  std::vector<std::string> arguments = {plugin.command};
  arguments.insert(arguments.end(), plugin.arguments.begin(), plugin.arguments.end());
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, 1);
  posix_spawn_file_actions_adddup2(&files, errors, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawnp(&pid, plugin.command.c_str(), &files, &attributes,
                                 pointers_of(arguments).data(), pointers_of(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

/// Kills the group, if the program has not been reaped, and reaps the program.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ > 0) (void)end();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Returns the wait status. What it left behind in its group is killed too.
  int end() {
    ::kill(-pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

/// The last line of foreign text that is not empty, printable and short.
std::string last_line(std::string text) {
  constexpr size_t kMost = 200;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  std::string line = text.substr(text.rfind('\n') + 1);
  if (line.size() > kMost) line.erase(0, line.size() - kMost);
  std::ranges::replace_if(line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

struct Spoken {
  std::string output = {};
  std::string errors = {};
};

/// Reads what is there; false at the end of the pipe.
bool read_some(const io::Fd& pipe, std::string& into) {
  std::array<char, 4096> block{};
  const ssize_t got = ::read(pipe.get(), block.data(), block.size());
  if (got > 0) into.append(block.data(), static_cast<size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

/// Reads both pipes until the program has ended: a child of its own may hold them open longer.
Status listen(const io::Fd& ended, io::Fd output, io::Fd errors, Duration patience,
              const std::stop_token& stop, Spoken& spoken) {
  constexpr size_t kMostErrors = 4096;
  const io::Fd woken(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::stop_callback waker(stop, [&woken] { (void)::eventfd_write(woken.get(), 1); });
  const Time end = monotonic_now() + patience;
  while (true) {
    std::array<pollfd, 4> polled = {{{output.get(), POLLIN, 0},
                                     {errors.get(), POLLIN, 0},
                                     {ended.get(), POLLIN, 0},
                                     {woken.get(), POLLIN, 0}}};
    const Duration left = end - monotonic_now();
    if (left <= Duration::zero()) return {Code::kDeadlineExceeded, "did not end in time"};
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    ::poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(wait, 60000)));
    if (stop.stop_requested()) return {Code::kCancelled, "stopped"};
    if (polled[0].revents != 0 && !read_some(output, spoken.output)) output.reset();
    if (polled[1].revents != 0 && !read_some(errors, spoken.errors)) errors.reset();
    if (spoken.output.size() > kMostExecOutputBytes) {
      return {Code::kResourceExhausted,
              fmt::format("prints more than {} bytes", kMostExecOutputBytes)};
    }
    if (spoken.errors.size() > kMostErrors) {
      spoken.errors.erase(0, spoken.errors.size() - kMostErrors / 2);
    }
    if (polled[2].revents != 0 && polled[0].revents == 0 && polled[1].revents == 0) return {};
  }
}

}  // namespace

Result<std::string> run_plugin(const ExecPlugin& plugin, const std::string& info, Duration patience,
                               const std::stop_token& stop) {
  const std::string context = "credential plug-in " + plugin.command;
  CORRO_ASSIGN(io::Pipe output, io::make_pipe());
  CORRO_ASSIGN(io::Pipe errors, io::make_pipe());
  pid_t pid = -1;
  const int error = spawn(plugin, info, output.write.get(), errors.write.get(), pid);
  if (error != 0) {
    const std::string hint = last_line(plugin.install_hint);
    const Status status = status_from_errno(context, error);
    return Status(Code::kUnauthenticated, status.message() + (hint.empty() ? "" : ": " + hint));
  }
  Child child(pid);
  output.write.reset();
  errors.write.reset();
  CORRO_ASSIGN(const io::Fd ended, io::open_pidfd(pid));
  Spoken spoken;
  const Status status =
      listen(ended, std::move(output.read), std::move(errors.read), patience, stop, spoken);
  if (!status.ok()) return status.with_context(context);
  const int ending = child.end();
  if (WIFEXITED(ending) && WEXITSTATUS(ending) == 0) return std::move(spoken.output);
  const std::string how = WIFEXITED(ending) ? fmt::format("exit status {}", WEXITSTATUS(ending))
                                            : fmt::format("signal {}", WTERMSIG(ending));
  return Status(Code::kUnauthenticated,
                fmt::format("{}: {}: {}", context, how, last_line(spoken.errors)));
}

}  // namespace corro::kube
