// The ranks of a job on this host, as processes: starting them, and what concerns all of them.
#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <vector>

#include "agent/rank_process.h"
#include "io/loop.h"

namespace corro::agent {

/// Loop-confined. `loop` outlives it.
class RankGroup {
 public:
  /// Called when a rank has printed something.
  using Printed = std::function<void(RankProcess&, io::Output)>;
  RankGroup(const sigset_t& signal_mask, io::Loop& loop, Printed printed)
      : signal_mask_(signal_mask), loop_(loop), printed_(std::move(printed)) {}

  /// Starts a rank and watches its output; if the others are paused, from resume() on. The loop
  /// turns when its standard input takes bytes again.
  Result<RankProcess*> start(const Subject& about, const WorkerSpec& spec);
  /// The running rank with this pid, or null.
  [[nodiscard]] RankProcess* find(pid_t pid);
  /// Whom a message is about; null if it was started no more or not yet.
  [[nodiscard]] RankProcess* find(const Subject& about);
  /// The rank of this number in an epoch, or null; of several that of the newest epoch.
  [[nodiscard]] RankProcess* find_rank(int rank);

  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& rank : ranks_) visit(*rank);
  }

  [[nodiscard]] bool any_output() const;
  void send(int signal) const;
  void resize_terminals(const Resize& sizes) const;
  /// Nothing is read from the ranks until resume(): they are held back.
  void pause();
  /// The first failure; the output of that rank is lost.
  Status resume();

 private:
  Status watch(RankProcess& rank, io::Output stream);

  sigset_t signal_mask_;
  io::Loop& loop_;
  Printed printed_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  bool paused_ = false;
};

}  // namespace corro::agent
