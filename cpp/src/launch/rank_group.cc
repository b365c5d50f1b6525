#include "launch/rank_group.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>

#include "launch/event_keys.h"

namespace corro::launch {
namespace {

/// Whether the rank's output goes to the screen as it is: then it may have a terminal.
bool has_screen(const LaunchPlan& plan, int rank) {
  const Show& show = plan.options.show;
  const int lead = show.mode == ShowMode::kRanks && show.ranks.size() == 1 ? show.ranks[0] : 0;
  return rank == lead && (plan.job.ranks == 1 || show.mode != ShowMode::kAll);
}

}  // namespace

RankGroup::RankGroup(const LaunchPlan& plan, const sigset_t& signal_mask, io::Epoll& epoll)
    : plan_(plan), signal_mask_(signal_mask), epoll_(epoll) {
  ranks_.reserve(static_cast<size_t>(plan.job.ranks));
}

Status RankGroup::start_next() {
  const auto rank = static_cast<int>(ranks_.size());
  CORRO_ASSIGN(Worker worker, start_worker(spec_of(rank), signal_mask_));
  const RankProcess& process = ranks_.emplace_back(rank, std::move(worker));
  CORRO_TRY(watch(process, Stream::kOut));
  return watch(process, Stream::kErr);
}

WorkerSpec RankGroup::spec_of(int rank) const {
  WorkerSpec spec;
  spec.program = plan_.command.program;
  spec.arguments = plan_.command.arguments;
  spec.environment = environment_of(plan_, rank);
  if (!plan_.binding.ranks.empty())
    spec.processors = plan_.binding.ranks[static_cast<size_t>(rank)];
  // A terminal cannot be read from the background: then there is no input.
  spec.inherits_stdin = rank == 0 && isatty(STDIN_FILENO) == 0;
  if (has_screen(plan_, rank)) {
    spec.out_terminal = terminal_size(STDOUT_FILENO);
    spec.err_terminal = terminal_size(STDERR_FILENO);
  }
  return spec;
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
    return rank.fd(Stream::kOut) >= 0 || rank.fd(Stream::kErr) >= 0;
  });
}

std::vector<RankEnd> RankGroup::describe() const {
  std::vector<RankEnd> ends;
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
    if (out) rank.set_terminal_size(Stream::kOut, *out);
    if (err) rank.set_terminal_size(Stream::kErr, *err);
  }
}

void RankGroup::pause() {
  for (const RankProcess& rank : ranks_) {
    for (const Stream stream : {Stream::kOut, Stream::kErr}) {
      if (rank.fd(stream) >= 0) epoll_.remove(rank.fd(stream));
    }
  }
}

Status RankGroup::resume() {
  Status first;
  for (const RankProcess& rank : ranks_) {
    for (const Stream stream : {Stream::kOut, Stream::kErr}) {
      if (rank.fd(stream) < 0) continue;
      const Status status = watch(rank, stream);
      if (first.ok()) first = status;
    }
  }
  return first;
}

Status RankGroup::watch(const RankProcess& rank, Stream stream) {
  const Source source = stream == Stream::kOut ? Source::kOut : Source::kErr;
  return epoll_.add(rank.fd(stream), EPOLLIN, key_of(source, rank.rank()))
      .with_context(fmt::format("output of rank {} is lost", rank.rank()));
}

}  // namespace corro::launch
