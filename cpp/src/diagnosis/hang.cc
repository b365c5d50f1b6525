#include "diagnosis/hang.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "diagnosis/flight_text.h"
#include "diagnosis/report.h"

namespace corro::diagnosis {
namespace {

struct Wait {
  const obs::OpSnapshot* op = nullptr;  ///< Null: the rank waits for nobody.
  Duration since{};
};

Wait wait_of(const RankEnd& rank, Time now) {
  if (rank.ended || !rank.flight) return {};
  const obs::OpSnapshot* op = telling_operation(*rank.flight);
  const bool goes_on = op != nullptr && op->started_ns != 0 && op->phase != obs::Phase::kDone &&
                       op->phase != obs::Phase::kFailed;
  if (!goes_on || op->waiting_for < 0) return {};
  return {op, now.since_start - Duration(static_cast<int64_t>(op->started_ns))};
}

/// What the awaited rank does instead.
std::string instead(const RankEnd& rank, Time now) {
  if (rank.ended) return "it has ended";
  const int pid = rank.flight ? rank.flight->pid : rank.pid;
  if (rank.paused) return fmt::format("stopped; kill -CONT {} lets it go on", pid);
  if (!rank.flight) return fmt::format("pid {} has not called corro.init()", pid);
  const std::string step = rank.flight->step > 0 ? fmt::format("step {}, ", rank.flight->step) : "";
  return step + describe_progress(*rank.flight, now);
}

}  // namespace

LongWait HangWatch::look(std::span<const RankEnd> ranks, Time now) {
  note_steps(ranks, now);
  if (bound_ == Duration::zero()) return {};
  const Duration bound = bound_.value_or(std::max(kLongWait, kLongWaitSteps * usual_step()));
  std::map<int, std::vector<int>> waiters;  // By whom they wait for.
  for (const RankEnd& rank : ranks) {
    const Wait wait = wait_of(rank, now);
    if (wait.op != nullptr && wait.since > bound && find_rank(ranks, wait.op->waiting_for))
      waiters[wait.op->waiting_for].push_back(rank.rank);
  }
  if (waiters.empty()) return {};
  const auto weight = [&](const auto& entry) {
    const bool waits = wait_of(*find_rank(ranks, entry.first), now).op != nullptr;
    return std::pair(!waits, entry.second.size());
  };
  const auto& [awaited, who] = *std::ranges::max_element(waiters, {}, weight);
  const Wait first = wait_of(*find_rank(ranks, who[0]), now);
  const std::string text =
      fmt::format("{} {} for rank {} in {} for {}; rank {}: {}", format_ranks(who),
                  who.size() == 1 ? "waits" : "wait", awaited, describe_operation(*first.op),
                  format_span(first.since), awaited, instead(*find_rank(ranks, awaited), now));
  return {.text = text, .awaited = awaited, .since = first.since};
}

void HangWatch::note_steps(std::span<const RankEnd> ranks, Time now) {
  paces_.resize(std::max(paces_.size(), ranks.size()));
  for (size_t i = 0; i < ranks.size(); ++i) {
    const uint64_t step = ranks[i].flight ? ranks[i].flight->step : 0;
    Pace& pace = paces_[i];
    if (step <= pace.last_step) continue;
    if (pace.first_step == 0) pace.first_step = step, pace.first = now;
    pace.last_step = step;
    pace.last = now;
  }
}

Duration HangWatch::usual_step() const {
  Duration slowest{};
  for (const Pace& pace : paces_) {
    if (pace.last_step == pace.first_step) continue;
    slowest = std::max(
        slowest, (pace.last - pace.first) / static_cast<int64_t>(pace.last_step - pace.first_step));
  }
  return slowest;
}

}  // namespace corro::diagnosis
