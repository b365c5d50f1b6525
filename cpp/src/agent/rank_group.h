// The ranks of a job on this host, as processes: starting them, and what concerns all of them.
#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/rank_process.h"
#include "io/loop.h"

namespace corro::agent {

/// Loop-confined. `loop` outlives it.
class RankGroup {
 public:
  /// Called when a rank, by its number, has printed something.
  using Printed = std::function<void(size_t, io::Output)>;
  RankGroup(const sigset_t& signal_mask, io::Loop& loop, Printed printed)
      : signal_mask_(signal_mask), loop_(loop), printed_(std::move(printed)) {}

  /// Starts the next rank, watches its output, and returns its pid; if the others are paused, it is
  /// watched from resume() on. The loop turns when its standard input takes bytes again.
  Result<pid_t> start(const WorkerSpec& spec);
  [[nodiscard]] RankProcess& operator[](size_t rank) { return *ranks_[rank]; }
  [[nodiscard]] size_t size() const { return ranks_.size(); }
  /// The running rank with this pid.
  [[nodiscard]] std::optional<size_t> find(pid_t pid) const;

  [[nodiscard]] bool any_output() const;
  void send(int signal) const;
  void resize_terminals(const Resize& sizes) const;
  /// Nothing is read from the ranks until resume(): they are held back.
  void pause();
  /// The first failure; the output of that rank is lost.
  Status resume();

 private:
  Status watch(size_t rank, io::Output stream);

  sigset_t signal_mask_;
  io::Loop& loop_;
  Printed printed_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  bool paused_ = false;
};

}  // namespace corro::agent
