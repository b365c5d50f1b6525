#include "launch/agent_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace corro::launch {
namespace {

constexpr int kNoSuchProgram = 127;  ///< A shell's status if there is no such program.

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

}  // namespace

Status AgentLink::watch(io::Epoll& epoll, uint64_t key, uint64_t errors_key) {
  CORRO_TRY(process_.pipe.watch(epoll, key));
  return remote() ? epoll.add(errors(), EPOLLIN, errors_key) : Status();
}

bool AgentLink::read_errors() {
  constexpr size_t kKept = size_t{8} << 10U;
  std::array<char, 4096> buffer{};
  ssize_t count = 0;
  while ((count = read(errors(), buffer.data(), buffer.size())) > 0) {
    said_.append(buffer.data(), static_cast<size_t>(count));
    if (said_.size() > kKept) said_.erase(0, said_.size() - kKept);
  }
  return count < 0 && (errno == EAGAIN || errno == EINTR);
}

std::string AgentLink::why(const std::string& corro) const {
  const std::string said = last_line(said_);
  siginfo_t end{};
  const auto id = static_cast<id_t>(pid());
  const bool ended = waitid(P_PID, id, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0;
  if (said.find("not found") != std::string::npos ||
      said.find("No such file") != std::string::npos ||
      (ended && end.si_code == CLD_EXITED && end.si_status == kNoSuchProgram)) {
    return fmt::format("no corro at {} there; install the same environment at the same place",
                       corro);
  }
  return said.empty() ? "its agent has ended without a word" : said;
}

int AgentLink::end(Duration patience) {
  process_.pipe.close();
  const Time until = monotonic_now() + patience;
  int status = 0;
  while (waitpid(pid(), &status, WNOHANG) == 0) {
    constexpr int kPauseMs = 1;
    poll(nullptr, 0, kPauseMs);
    if (monotonic_now() >= until) kill(pid(), SIGKILL);
  }
  return status;
}

}  // namespace corro::launch
