#include "agent/reaper.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "agent/processes.h"

namespace corro::agent {

Status Reaper::open() {
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  signals_.reset(signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK));
  return station_.loop.watch(signals_.get(), EPOLLIN, [this] { reap(); });
}

void Reaper::reap() {
  signalfd_siginfo ignored{};
  while (read(signals_.get(), &ignored, sizeof(ignored)) > 0) {
  }
  while (true) {
    siginfo_t ended{};
    // Looked at first: the cgroup of a process can be read until it is reaped.
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) break;
    const auto rank = station_.ranks.find(ended.si_pid);
    if (rank) look_for_lack_of_memory(*rank, ended);
    int status = 0;
    if (waitpid(ended.si_pid, &status, WNOHANG) != ended.si_pid) continue;
    if (rank) on_rank_end(*rank, status);
    branches_.take_end(ended.si_pid, status);
  }
  tell_departures();
  orders_.carry_out();
}

void Reaper::look_for_lack_of_memory(size_t rank, const siginfo_t& ended) {
  const bool was_killed = ended.si_code == CLD_KILLED && ended.si_status == SIGKILL;
  if (!was_killed || station_.course.ending() || station_.course.is_fenced(rank)) return;
  if (auto limit = out_of_memory_.explain(ended.si_pid))
    station_.ranks[rank].set_out_of_memory(*limit);
}

void Reaper::on_rank_end(size_t rank, int status) {
  AgentCourse& course = station_.course;
  station_.ranks[rank].set_ended(status, course.ending() || course.is_fenced(rank));
  streams_.read_rest(rank);
  course.on_end(rank, diagnosis::ended_well({.ended = true, .status = status}));
  orders_.carry_out();
}

/// A process that a rank has left behind may join for it.
void Reaper::tell_departures() {
  if (!workers_.is_open()) return;
  const auto any_orphan = [this] {
    const auto shells = branches_.shells();
    return std::ranges::any_of(own_children(), [&](pid_t child) {
      return !station_.ranks.find(child) && !shells.contains(child);
    });
  };
  station_.course.tell_departures([this](int32_t number) { return workers_.greeted(number); },
                                  any_orphan);
}

}  // namespace corro::agent
