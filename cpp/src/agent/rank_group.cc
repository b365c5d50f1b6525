#include "agent/rank_group.h"

#include <fmt/format.h>

#include <algorithm>

namespace corro::agent {

Result<RankProcess*> RankGroup::start(const Subject& about, const WorkerSpec& spec) {
  CORRO_ASSIGN(Worker worker, start_worker(spec, signal_mask_));
  ranks_.push_back(std::make_unique<RankProcess>(about, std::move(worker)));
  // Told at the edge: while nothing waits to be written nobody asks.
  if (const int input = ranks_.back()->input_fd(); input >= 0)
    CORRO_TRY(loop_.watch(input, EPOLLOUT, [] {}, io::Trigger::kEdge));
  if (paused_) return ranks_.back().get();
  for (const io::Output stream : io::kOutputs) CORRO_TRY(watch(*ranks_.back(), stream));
  return ranks_.back().get();
}

RankProcess* RankGroup::find(pid_t pid) {
  const auto found = std::ranges::find_if(
      ranks_, [&](const auto& rank) { return rank->running() && rank->pid() == pid; });
  return found == ranks_.end() ? nullptr : found->get();
}

RankProcess* RankGroup::find(const Subject& about) {
  const auto found =
      std::ranges::find_if(ranks_, [&](const auto& rank) { return rank->about() == about; });
  return found == ranks_.end() ? nullptr : found->get();
}

RankProcess* RankGroup::find_rank(int rank) {
  RankProcess* found = nullptr;
  for (const auto& one : ranks_) {
    const bool is_newer = found == nullptr || one->about().epoch > found->about().epoch;
    if (one->rank() == rank && one->about().epoch != kNoEpochYet && is_newer) found = one.get();
  }
  return found;
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
  for (const auto& rank : ranks_) {
    for (const io::Output stream : io::kOutputs) {
      const Status status = watch(*rank, stream);
      if (first.ok()) first = status;
    }
  }
  return first;
}

Status RankGroup::watch(RankProcess& rank, io::Output stream) {
  if (rank.fd(stream) < 0) return {};
  return loop_.watch(rank.fd(stream), EPOLLIN, [this, &rank, stream] { printed_(rank, stream); })
      .with_context(fmt::format("output of rank {} is lost", rank.rank()));
}

}  // namespace corro::agent
