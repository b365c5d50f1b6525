#include "agent/rank_group.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>

#include "agent/event_keys.h"

namespace corro::agent {

Result<RankProcess*> RankGroup::start(const Subject& about, const WorkerSpec& spec) {
  CORRO_ASSIGN(Worker worker, start_worker(spec, signal_mask_));
  ranks_.push_back(std::make_unique<RankProcess>(about, std::move(worker)));
  // Told at the edge: while nothing waits to be written nobody asks.
  if (const int input = ranks_.back()->input_fd(); input >= 0)
    CORRO_TRY(epoll_.add(input, EPOLLOUT, key_of(Source::kInput), io::Trigger::kEdge));
  if (paused_) return ranks_.back().get();
  for (const io::Output stream : io::kOutputs) CORRO_TRY(watch(ranks_.size() - 1, stream));
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
      if (rank->fd(stream) >= 0) epoll_.remove(rank->fd(stream));
    }
  }
}

Status RankGroup::resume() {
  paused_ = false;
  Status first;
  for (size_t place = 0; place < ranks_.size(); ++place) {
    for (const io::Output stream : io::kOutputs) {
      const Status status = watch(place, stream);
      if (first.ok()) first = status;
    }
  }
  return first;
}

Status RankGroup::watch(size_t place, io::Output stream) {
  if (ranks_[place]->fd(stream) < 0) return {};
  const Source source = stream == io::Output::kOut   ? Source::kOut
                        : stream == io::Output::kErr ? Source::kErr
                                                     : Source::kResult;
  return epoll_.add(ranks_[place]->fd(stream), EPOLLIN, key_of(source, place))
      .with_context(fmt::format("output of rank {} is lost", ranks_[place]->rank()));
}

}  // namespace corro::agent
