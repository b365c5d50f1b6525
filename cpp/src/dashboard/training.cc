// How fast the training is: from a change of the newest step to a later one, at least half a minute
// before, or as long as steps are known. A job that goes back begins anew. After a change nothing may
// come for ten seconds, or for as long as three steps take: then it stands still, and nobody knows how
// long the rest takes. Before such changes were seen, what a step takes on the slowest rank says it.
#include "dashboard/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "dashboard/board.h"

namespace corro::dashboard {
namespace {

constexpr std::chrono::seconds kWindow{30};
constexpr double kPatience = 10;  // Seconds.
constexpr double kPatienceInSteps = 3;

bool is_over(const JobPicture& job) {
  return job.state == JobState::kDone || job.state == JobState::kFailed;
}

/// Those that count: who runs, or all once none does.
std::vector<const RankRow*> counted(const std::vector<RankRow>& ranks) {
  const bool any_runs = std::ranges::any_of(ranks, runs);
  std::vector<const RankRow*> chosen;
  for (const RankRow& one : ranks)
    if (!any_runs || runs(one)) chosen.push_back(&one);
  return chosen;
}

void add_value(Metric& metric, const LoggedValue& one) {
  const bool is_first = metric.ranks++ == 0;
  metric.mean += one.value;  // Their sum, as yet.
  metric.least = is_first ? one.value : std::fmin(metric.least, one.value);
  metric.most = is_first ? one.value : std::fmax(metric.most, one.value);
  metric.step = std::max(metric.step, one.step);
}

/// Where the newest step has changed since the job went back last, the newest one last. The first one
/// may be in the middle of a step, and is left out if there are others.
std::vector<StepPoint> changes_of(std::span<const StepPoint> steps) {
  std::vector<StepPoint> changes;
  for (const StepPoint& one : steps) {
    if (!changes.empty() && one.step < changes.back().step) changes.clear();
    if (changes.empty() || one.step > changes.back().step) changes.push_back(one);
  }
  constexpr size_t kEnough = 3;
  if (changes.size() >= kEnough) changes.erase(changes.begin());
  return changes;
}

double seconds_between(UnixTime from, UnixTime to) {
  return std::chrono::duration<double>(to - from).count();
}

/// By what steps take on the slowest rank.
std::optional<double> told_rate(const std::vector<const RankRow*>& ranks) {
  double slowest = 0;
  for (const RankRow* one : ranks) slowest = std::max(slowest, one->step_seconds.value_or(0));
  return slowest > 0 ? std::optional(1 / slowest) : std::nullopt;
}

std::optional<double> rate_of(const std::vector<const RankRow*>& ranks,
                              std::span<const StepPoint> steps, UnixTime now) {
  const std::vector<StepPoint> changes = changes_of(steps);
  const auto told = told_rate(ranks);
  if (changes.size() < 2) return told;
  const StepPoint& last = changes.back();
  const auto is_before = [&last](const StepPoint& one) { return last.at - one.at >= kWindow; };
  const auto before = std::find_if(changes.rbegin(), changes.rend(), is_before);
  const StepPoint& first = before == changes.rend() ? changes.front() : *before;
  const double seconds = seconds_between(first.at, last.at);
  const double rate = static_cast<double>(last.step - first.step) / seconds;
  const bool stands = seconds_between(last.at, now) > std::max(kPatience, kPatienceInSteps / rate);
  return stands ? 0 : rate;
}

}  // namespace

std::vector<Metric> metrics_of(const std::vector<RankRow>& ranks) {
  std::vector<Metric> metrics;
  for (const RankRow* rank : counted(ranks)) {
    for (const LoggedValue& one : rank->values) {
      auto found = std::ranges::find(metrics, one.name, &Metric::name);
      if (found == metrics.end() && metrics.size() == kMostNames) continue;
      if (found == metrics.end()) found = metrics.insert(found, {.name = one.name});
      add_value(*found, one);
    }
  }
  for (Metric& one : metrics) one.mean /= static_cast<double>(one.ranks);
  return metrics;
}

std::optional<Progress> progress_of(const JobPicture& job, std::span<const StepPoint> steps,
                                    UnixTime now) {
  const std::vector<const RankRow*> ranks = counted(job.ranks);
  Progress made;
  bool is_known = false;
  for (const RankRow* one : ranks) {
    if (!one->step) continue;
    is_known = true;
    made.step = std::max(made.step, one->done.value_or(*one->step));
    if (one->of) made.of = std::max(made.of.value_or(0), *one->of);
  }
  if (!is_known) return std::nullopt;
  if (is_over(job)) return made;
  made.steps_per_second = rate_of(ranks, steps, now);
  if (made.of && made.steps_per_second.value_or(0) > 0) {
    const uint64_t left = *made.of - std::min(*made.of, made.step);
    made.eta_seconds = static_cast<double>(left) / *made.steps_per_second;
  }
  return made;
}

std::string describe_eta(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 60 * kMinute;
  constexpr double kDay = 24 * kHour;
  if (seconds < 1.5 * kMinute) return fmt::format("about {:.0f} s left", seconds);
  if (seconds < 1.5 * kHour) return fmt::format("about {:.0f} min left", seconds / kMinute);
  if (seconds < 2 * kDay) return fmt::format("about {:.0f} h left", seconds / kHour);
  return fmt::format("about {:.0f} days left", seconds / kDay);
}

}  // namespace corro::dashboard
