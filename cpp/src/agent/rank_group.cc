#include "agent/rank_group.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>

#include "agent/event_keys.h"

namespace corro::agent {

RankGroup::RankGroup(int ranks, const sigset_t& signal_mask, io::Epoll& epoll)
    : signal_mask_(signal_mask), epoll_(epoll) {
  ranks_.reserve(static_cast<size_t>(ranks));
}

Status RankGroup::start_next(const WorkerSpec& spec) {
  const auto rank = static_cast<int>(ranks_.size());
  CORRO_ASSIGN(Worker worker, start_worker(spec, signal_mask_));
  const RankProcess& process = ranks_.emplace_back(rank, std::move(worker));
  CORRO_TRY(watch(process, io::Output::kOut));
  return watch(process, io::Output::kErr);
}

RankProcess* RankGroup::find(pid_t pid) {
  const auto found = std::ranges::find_if(
      ranks_, [&](const RankProcess& rank) { return rank.running() && rank.pid() == pid; });
  return found == ranks_.end() ? nullptr : &*found;
}

bool RankGroup::any_running() const {
  return std::ranges::any_of(ranks_, [](const RankProcess& rank) { return rank.running(); });
}

bool RankGroup::any_output() const {
  return std::ranges::any_of(ranks_, [](const RankProcess& rank) {
    return rank.fd(io::Output::kOut) >= 0 || rank.fd(io::Output::kErr) >= 0;
  });
}

std::vector<diagnosis::RankEnd> RankGroup::describe() const {
  std::vector<diagnosis::RankEnd> ends;
  ends.reserve(ranks_.size());
  for (const RankProcess& rank : ranks_) ends.push_back(rank.describe());
  return ends;
}

void RankGroup::send(int signal) const {
  for (const RankProcess& rank : ranks_) rank.send(signal);
}

void RankGroup::resize_terminals() const {
  const auto out = terminal_size(STDOUT_FILENO);
  const auto err = terminal_size(STDERR_FILENO);
  for (const RankProcess& rank : ranks_) {
    if (out) rank.set_terminal_size(io::Output::kOut, *out);
    if (err) rank.set_terminal_size(io::Output::kErr, *err);
  }
}

void RankGroup::pause() {
  for (const RankProcess& rank : ranks_) {
    for (const io::Output stream : {io::Output::kOut, io::Output::kErr}) {
      if (rank.fd(stream) >= 0) epoll_.remove(rank.fd(stream));
    }
  }
}

Status RankGroup::resume() {
  Status first;
  for (const RankProcess& rank : ranks_) {
    for (const io::Output stream : {io::Output::kOut, io::Output::kErr}) {
      if (rank.fd(stream) < 0) continue;
      const Status status = watch(rank, stream);
      if (first.ok()) first = status;
    }
  }
  return first;
}

Status RankGroup::watch(const RankProcess& rank, io::Output stream) {
  const Source source = stream == io::Output::kOut ? Source::kOut : Source::kErr;
  return epoll_.add(rank.fd(stream), EPOLLIN, key_of(source, rank.rank()))
      .with_context(fmt::format("output of rank {} is lost", rank.rank()));
}

}  // namespace corro::agent
