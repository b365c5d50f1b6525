#include "dashboard/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace corro::dashboard {
namespace {

constexpr std::chrono::milliseconds kBetweenPoints{900};  ///< Pictures come a little early or late.

}  // namespace

std::string_view name_of(RankState state) {
  constexpr std::array<std::string_view, 7> kNames = {"starting", "running", "paused", "done",
                                                      "stopped",  "failed",  "lost"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view name_of(JobState state) {
  constexpr std::array<std::string_view, kJobStates> kNames = {"opening", "running", "waiting",
                                                               "ending",  "done",    "failed"};
  return kNames[static_cast<size_t>(state)];
}

bool runs(const RankRow& rank) {
  return rank.state == RankState::kRunning || rank.state == RankState::kPaused;
}

std::optional<StepRange> steps_of(const std::vector<RankRow>& ranks) {
  std::optional<StepRange> range;
  for (const RankRow& one : ranks) {
    if (!runs(one) || !one.step) continue;
    if (!range) range = StepRange{.least = *one.step, .most = *one.step};
    range->least = std::min(range->least, *one.step);
    range->most = std::max(range->most, *one.step);
  }
  return range;
}

void Board::hear(Happening happening) {
  ++counts_[happening.kind];
  if (happening.kind == "step") return;
  if (happening.kind == "waiting" && !happening.cause.empty()) ++waits_;
  if (happening.kind == "checkpoint" && happening.step) checkpoint_ = happening.step;
  happenings_.push_back(std::move(happening));
  if (happenings_.size() > kMostHappenings) happenings_.pop_front();
}

void Board::show(JobPicture picture, UnixTime now) {
  picture_ = std::move(picture);
  note_step(now);
  note_metrics(now);
  count_steps();
  count_tables(now);
  links_.show(picture_.links, now);
}

std::string name_of(const TablePart& part, std::string_view what) {
  return fmt::format("{} {} {}", what, part.server, part.table);
}

void Board::count_tables(UnixTime now) {
  Rates::Counters counters;
  for (const TablePart& one : picture_.tables) {
    counters[name_of(one, "pulls")] = one.pulls;
    counters[name_of(one, "pushes")] = one.pushes;
    counters[name_of(one, "pulled_rows")] = one.pulled_rows;
    counters[name_of(one, "pushed_rows")] = one.pushed_rows;
  }
  table_rates_.sample(std::move(counters), now);
}

void Board::count_steps() {
  for (const StepsOfMember& one : picture_.steps) {
    Counted& counted = counted_[one.member];
    const bool is_new = one.steps.taken.count() < counted.last.taken.count();
    if (is_new) counted.before += counted.last;
    counted.last = one.steps;
  }
}

StepHistograms Board::step_histograms() const {
  StepHistograms all;
  for (const auto& [member, counted] : counted_) {
    all += counted.before;
    all += counted.last;
  }
  return all;
}

void Board::note_step(UnixTime now) {
  const auto range = steps_of(picture_.ranks);
  if (!range || (!steps_.empty() && now < steps_.back().at + kBetweenPoints)) return;
  steps_.push_back({.at = now, .step = range->most});
  if (steps_.size() > kMostSteps) steps_.erase(steps_.begin());
}

void Board::note_metrics(UnixTime now) {
  for (const Metric& one : metrics_of(picture_.ranks)) {
    auto found = std::ranges::find(courses_, one.name, &Course::name);
    if (found == courses_.end() && courses_.size() == kMostNames) continue;
    if (found == courses_.end()) found = courses_.insert(found, {.name = one.name, .series = {}});
    found->series.add({.at = now, .step = one.step, .value = one.mean});
  }
}

uint64_t Board::count(const std::string& kind) const {
  const auto found = counts_.find(kind);
  return found == counts_.end() ? 0 : found->second;
}

}  // namespace corro::dashboard
