#include "agent/processes.h"

#include <dirent.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <unordered_map>

#include "io/files.h"

namespace corro::agent {
namespace {

struct ProcessFacts {
  pid_t parent = 0;
  char state = '?';  ///< As in /proc/<pid>/stat; '?' if it is gone.
  [[nodiscard]] bool ended() const { return state == 'Z' || state == 'X' || state == '?'; }
};

/// Reads the state and the parent from /proc/<pid>/stat: "12 (a name) S 11 ...".
ProcessFacts read_facts(pid_t pid) {
  const std::string stat = io::read_small_file("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos || name_end + 4 > stat.size()) return {};
  return {.parent = static_cast<pid_t>(std::strtol(stat.c_str() + name_end + 4, nullptr, 10)),
          .state = stat[name_end + 2]};
}

std::unordered_map<pid_t, ProcessFacts> read_processes() {
  std::unordered_map<pid_t, ProcessFacts> processes;
  for (const pid_t pid : all_processes()) processes[pid] = read_facts(pid);
  return processes;
}

/// Asks with one system call; to read all of /proc takes tens of milliseconds on a busy host.
bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

}  // namespace

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return pids;
  while (const dirent* entry = readdir(folder)) {
    const auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid > 0) pids.push_back(pid);
  }
  closedir(folder);
  return pids;
}

std::vector<pid_t> descendants_of(pid_t root, const std::set<pid_t>& without) {
  if (root == getpid() && !has_children()) return {};
  const auto processes = read_processes();
  std::vector<pid_t> found;
  for (const auto& [pid, status] : processes) {
    if (status.ended() || pid == root) continue;
    pid_t ancestor = pid;
    // A chain of parents is no longer than there are processes, even if pids changed meanwhile.
    for (size_t i = 0; i <= processes.size() && ancestor > 1 && ancestor != root; ++i) {
      const auto parent = processes.find(ancestor);
      const bool stops = parent == processes.end() || without.contains(ancestor);
      ancestor = stops ? 0 : parent->second.parent;
    }
    if (ancestor == root) found.push_back(pid);
  }
  return found;
}

std::vector<pid_t> own_children() {
  std::vector<pid_t> found;
  std::ifstream list("/proc/thread-self/children");  // Of a kernel that was built with it.
  if (list) {
    for (pid_t pid = 0; list >> pid;)
      if (!read_facts(pid).ended()) found.push_back(pid);
    return found;
  }
  for (const auto& [pid, facts] : read_processes()) {
    if (!facts.ended() && facts.parent == getpid()) found.push_back(pid);
  }
  return found;
}

char process_state(pid_t pid) {
  const char state = read_facts(pid).state;
  return state == 'X' ? '?' : state;  // It is being reaped: nobody finds it any more.
}

std::string status_field(pid_t pid, const std::string& name) {
  const std::string status = "\n" + io::read_small_file("/proc/" + std::to_string(pid) + "/status");
  const std::string label = "\n" + name + ":\t";
  const size_t at = status.find(label);
  if (at == std::string::npos) return "";
  const size_t first = at + label.size();
  return status.substr(first, status.find('\n', first) - first);
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool kill_descendants(Duration patience) {
  const Time end = monotonic_now() + patience;
  while (true) {
    const auto left = descendants_of(getpid());
    for (const pid_t pid : left) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (left.empty()) return true;
    if (monotonic_now() > end) return false;
    constexpr int kPauseMs = 2;
    poll(nullptr, 0, kPauseMs);
  }
}

}  // namespace corro::agent
