#include "launch/progress.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace corro::launch {
namespace {

constexpr Duration kPause = std::chrono::seconds(5);
constexpr Duration kWindow = std::chrono::seconds(10);
constexpr size_t kMostChanges = 8;

/// Whether it says who takes part from now on, or that nobody does.
bool is_change(EventKind kind) {
  switch (kind) {
    case EventKind::kEpoch:
    case EventKind::kLead:
    case EventKind::kStopped:
    case EventKind::kFailure:
      return true;
    default:
      return false;
  }
}

nlohmann::ordered_json json_of(const Progress::Checkpoint& checkpoint) {
  nlohmann::ordered_json json{{"step", checkpoint.step}, {"time", rfc3339_micro(checkpoint.at)}};
  if (!checkpoint.path.empty()) json["path"] = checkpoint.path;
  return json;
}

}  // namespace

std::string format_progress(const Progress& progress) {
  using Object = nlohmann::ordered_json;
  constexpr double kTenths = 10;
  constexpr double kThousandths = 1000;
  Object json{{"epoch", progress.epoch}, {"ranks", progress.ranks}, {"step", progress.step}};
  if (progress.rate) {
    const double parts = *progress.rate < 1 ? kThousandths : kTenths;
    json["stepsPerSecond"] = std::round(*progress.rate * parts) / parts;
  }
  if (!progress.plan.empty()) json["plan"] = progress.plan;
  if (progress.checkpoint) json["lastCheckpoint"] = json_of(*progress.checkpoint);
  json["changes"] = Object::array();
  for (const Progress::Change& change : progress.changes)
    json["changes"].push_back({{"time", rfc3339_micro(change.at)}, {"text", change.text}});
  return json.dump(-1, ' ', false, Object::error_handler_t::replace);
}

void ProgressWatch::hear(const Event& event, size_t ranks, Time now, UnixTime clock) {
  if (event.kind == EventKind::kEpoch) steps_.clear();
  if (event.kind == EventKind::kStep && event.step) hear_step(*event.step, now);
  const UnixTime at = clock - std::chrono::floor<UnixTime::duration>(event.age);
  if (event.kind == EventKind::kCheckpoint) hear_checkpoint(event, at);
  if (event.kind == EventKind::kPlan) hear_plan(event, at);
  progress_.epoch = event.epoch;
  progress_.ranks = ranks;
  is_new_ = true;
  if (!is_change(event.kind) || event.cause.empty()) return;
  progress_.changes.push_back({.at = clock, .text = event.cause});
  if (progress_.changes.size() > kMostChanges) progress_.changes.erase(progress_.changes.begin());
  is_change_ = true;
}

/// Ranks say one after another that they have begun the same one.
void ProgressWatch::hear_step(uint64_t step, Time now) {
  if (!steps_.empty() && step <= steps_.back().second) return;
  progress_.step = step;
  stepped_ = now;
  steps_.emplace_back(now, step);
  while (steps_.size() > 2 && now >= steps_[1].first + kWindow) steps_.pop_front();
  const auto& [first_time, first_step] = steps_.front();
  const double seconds = std::chrono::duration<double>(now - first_time).count();
  if (seconds > 0) progress_.rate = static_cast<double>(step - first_step) / seconds;
}

/// Then nobody believes the rate any more, unless a step comes.
Time ProgressWatch::stands_still_at() const {
  if (!stepped_ || progress_.rate == 0) return Time::never();
  const std::chrono::duration<double> two_steps(progress_.rate ? 2 / *progress_.rate : 0);
  return *stepped_ + std::max(kWindow, std::chrono::duration_cast<Duration>(two_steps));
}

/// When a coordinator begins to lead, agents tell it of the last checkpoint and the last plan of each
/// of their ranks, in any order.
void ProgressWatch::hear_checkpoint(const Event& event, UnixTime at) {
  if (progress_.checkpoint && at < progress_.checkpoint->at) return;
  progress_.checkpoint = {.step = event.step.value_or(0), .at = at, .path = event.cause};
}

void ProgressWatch::hear_plan(const Event& event, UnixTime at) {
  if (at < planned_at_) return;
  progress_.plan = event.cause;
  planned_at_ = at;
}

Time ProgressWatch::due() const {
  if (!is_new_) return stands_still_at();
  return is_change_ ? Time{} : taken_ + kPause;
}

const Progress& ProgressWatch::take(Time now) {
  taken_ = now;
  is_new_ = false;
  is_change_ = false;
  if (now >= stands_still_at()) progress_.rate = 0;
  return progress_;
}

}  // namespace corro::launch
