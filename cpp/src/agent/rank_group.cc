#include "agent/rank_group.h"

#include <fmt/format.h>

#include <algorithm>

namespace corro::agent {

Result<pid_t> RankGroup::start(const WorkerSpec& spec) {
  CORRO_ASSIGN(Worker worker, start_worker(spec, signal_mask_));
  ranks_.push_back(std::make_unique<RankProcess>(std::move(worker)));
  const RankProcess& rank = *ranks_.back();
  // Told at the edge: while nothing waits to be written nobody asks.
  if (const int input = rank.input_fd(); input >= 0)
    CORRO_TRY(loop_.watch(input, EPOLLOUT, [] {}, io::Trigger::kEdge));
  if (paused_) return rank.pid();
  for (const io::Output stream : io::kOutputs) CORRO_TRY(watch(ranks_.size() - 1, stream));
  return rank.pid();
}

std::optional<size_t> RankGroup::find(pid_t pid) const {
  const auto found = std::ranges::find_if(
      ranks_, [&](const auto& rank) { return rank->running() && rank->pid() == pid; });
  if (found == ranks_.end()) return std::nullopt;
  return static_cast<size_t>(found - ranks_.begin());
}

bool RankGroup::any_output() const {
  return std::ranges::any_of(ranks_, [](const auto& rank) {
    return std::ranges::any_of(io::kOutputs,
                               [&](io::Output stream) { return rank->fd(stream) >= 0; });
  });
}

void RankGroup::send(int signal) const {
  for (const auto& rank : ranks_) rank->send(signal);
}

void RankGroup::resize_terminals(const Resize& sizes) const {
  for (const auto& rank : ranks_) {
    if (sizes.out) rank->set_terminal_size(io::Output::kOut, *sizes.out);
    if (sizes.err) rank->set_terminal_size(io::Output::kErr, *sizes.err);
  }
}

void RankGroup::pause() {
  paused_ = true;
  for (const auto& rank : ranks_) {
    for (const io::Output stream : io::kOutputs) {
      if (rank->fd(stream) >= 0) loop_.forget(rank->fd(stream));
    }
  }
}

Status RankGroup::resume() {
  paused_ = false;
  Status first;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const io::Output stream : io::kOutputs) {
      const Status status = watch(rank, stream);
      if (first.ok()) first = status;
    }
  }
  return first;
}

Status RankGroup::watch(size_t rank, io::Output stream) {
  const int fd = ranks_[rank]->fd(stream);
  if (fd < 0) return {};
  return loop_.watch(fd, EPOLLIN, [this, rank, stream] { printed_(rank, stream); })
      .with_context(fmt::format("output of process {} is lost", ranks_[rank]->pid()));
}

}  // namespace corro::agent
