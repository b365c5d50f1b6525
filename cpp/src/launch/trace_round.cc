#include "launch/trace_round.h"

#include <utility>
#include <vector>

namespace corro::launch {
namespace {

/// Agents answer at once; this is for the way there and back.
constexpr Duration kTraceAnswer = std::chrono::seconds(3);

}  // namespace

void TraceRound::begin(std::span<const diagnosis::RankEnd> ends, Time now) {
  processes_.clear();
  round_.begin(ends, now, kTraceAnswer);
}

void TraceRound::take(size_t rank, std::optional<obs::ProcessTrace> process) {
  if (!round_.take(rank, process ? "" : "has not called corro.init() yet")) return;
  if (process) processes_[static_cast<int>(rank)] = std::move(*process);
}

std::string TraceRound::finish(Time now) {
  std::vector<obs::TracedRank> ranks;
  for (const RankRound::Rank& one : round_.finish()) {
    obs::TracedRank traced{
        .rank = one.rank, .host = one.host, .process = {}, .missing = one.missing};
    if (const auto found = processes_.find(one.rank); found != processes_.end())
      traced.process = std::move(found->second);
    ranks.push_back(std::move(traced));
  }
  processes_.clear();
  return obs::format_trace(ranks, now);
}

}  // namespace corro::launch
