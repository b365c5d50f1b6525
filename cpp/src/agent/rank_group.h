// The ranks of a job on this host, as processes: starting them, and what concerns all of them.
#pragma once

#include <signal.h>

#include <vector>

#include "agent/rank_process.h"
#include "io/event.h"

namespace corro::agent {

/// Loop-confined. `epoll` outlives it.
class RankGroup {
 public:
  /// For at most `ranks` ranks.
  RankGroup(int ranks, const sigset_t& signal_mask, io::Epoll& epoll);

  /// Starts the next rank and watches its output under key_of(Source::kOut or kErr, rank).
  Status start_next(const WorkerSpec& spec);
  [[nodiscard]] size_t size() const { return ranks_.size(); }
  [[nodiscard]] RankProcess& operator[](size_t rank) { return ranks_[rank]; }
  /// The running rank with this pid, or null.
  [[nodiscard]] RankProcess* find(pid_t pid);

  [[nodiscard]] bool any_running() const;
  [[nodiscard]] bool any_output() const;
  [[nodiscard]] std::vector<diagnosis::RankEnd> describe() const;
  void send(int signal) const;
  /// Passes the size of the user's terminals on.
  void resize_terminals() const;
  /// Nothing is read from the ranks until resume(): they are held back.
  void pause();
  /// The first failure; the output of that rank is lost.
  Status resume();

 private:
  Status watch(const RankProcess& rank, io::Output stream);

  sigset_t signal_mask_;
  io::Epoll& epoll_;
  std::vector<RankProcess> ranks_;
};

}  // namespace corro::agent
