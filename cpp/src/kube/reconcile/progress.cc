#include "kube/reconcile/progress.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/unix_time.h"
#include "kube/reconcile/head_rights.h"

namespace corro::kube {
namespace {

constexpr size_t kMostBytes = size_t{64} << 10U;
constexpr size_t kMostChanges = 8;
constexpr size_t kMostText = 1000;
constexpr size_t kMostPath = 4096;
constexpr size_t kMostPlan = 63;

/// What stands in the ConfigMap; an empty object if that is nothing of use.
Json told_by_head(const JobView& view) {
  const Json* map = view.object("ConfigMap", progress_name(view.spec));
  if (map == nullptr) return Json::object();
  const std::string text = text_in(object_in(*map, "data"), "progress");
  if (text.size() > kMostBytes) return Json::object();
  Json told = Json::parse(text, nullptr, false);
  return told.is_object() ? told : Json::object();
}

/// A number that is at least 0, and not above `most`.
void take_number(const Json& told, const char* field, int64_t most, Json& progress) {
  const auto found = told.find(field);
  if (found == told.end() || !found->is_number_integer()) return;
  const auto value = found->get<int64_t>();
  if (value >= 0 && value <= most) progress[field] = value;
}

void take_plan(const Json& told, Json& progress) {
  const std::string name = text_in(told, "plan");
  if (!name.empty() && name.size() <= kMostPlan) progress["plan"] = name;
}

/// Whole or not at all; of the path the head may know nothing.
void take_checkpoint(const Json& told, Json& progress) {
  const Json& said = object_in(told, "lastCheckpoint");
  const std::string time = text_in(said, "time");
  const std::string path = text_in(said, "path");
  Json checkpoint = Json::object();
  take_number(said, "step", std::numeric_limits<int64_t>::max(), checkpoint);
  if (checkpoint.empty() || !parse_rfc3339(time) || path.size() > kMostPath) return;
  checkpoint["time"] = time;
  if (!path.empty()) checkpoint["path"] = path;
  progress["lastCheckpoint"] = std::move(checkpoint);
}

/// A head says in which round it leads. One of an earlier version of corro does not: it is believed.
bool is_of_this_round(const Json& told, const JobView& view) {
  const std::string round = text_in(told, "round");
  return round.empty() || round == std::to_string(view.status.number("round"));
}

/// Of ranks that are no more, the checkpoint counts.
void forget_round(JobView& view) {
  Json kept = Json::object();
  const Json& before = view.status.object("progress");
  if (before.contains("lastCheckpoint")) kept["lastCheckpoint"] = before["lastCheckpoint"];
  view.status.set("progress", std::move(kept));
}

/// A head that has just begun to lead ranks knows of no step yet.
void take_step(const Json& told, Json& progress) {
  if (progress.contains("step") && told.value("step", Json()) == Json(0)) return;
  take_number(told, "step", std::numeric_limits<int64_t>::max(), progress);
}

/// Those that are newer than what the status tells of become events: those behind the last one that
/// it tells of, or all, since the next head tells of its own alone. Clocks of heads need not agree.
void take_changes(const Json& told, JobView& view, Json& progress) {
  const auto changes = told.find("changes");
  if (changes == told.end() || !changes->is_array() || changes->size() > kMostChanges) return;
  const Json& before = view.status.object("progress");
  const std::string last_time = text_in(before, "lastChangeTime");
  const std::string last_text = text_in(before, "lastChange");
  const auto last = std::ranges::find_if(*changes, [&](const Json& change) {
    return text_in(change, "time") == last_time && text_in(change, "text") == last_text;
  });
  for (auto change = last == changes->end() ? changes->begin() : std::next(last);
       change != changes->end(); ++change) {
    const std::string time = text_in(*change, "time");
    const std::string text = text_in(*change, "text");
    if (!parse_rfc3339(time) || text.empty() || text.size() > kMostText) continue;
    progress["lastChange"] = text;
    progress["lastChangeTime"] = time;
    view.event("Normal", view.reason_of("MembersChanged"), text);
  }
}

}  // namespace

void report_progress(JobView& view) {
  if (!view.spec.is_elastic()) return;
  const Json told = told_by_head(view);
  if (told.empty()) return;
  if (!is_of_this_round(told, view)) return forget_round(view);
  Json progress = view.status.object("progress");
  take_number(told, "epoch", std::numeric_limits<int32_t>::max(), progress);
  take_number(told, "ranks", std::numeric_limits<int32_t>::max(), progress);
  take_step(told, progress);
  progress.erase("stepsPerSecond");
  const auto rate = told.find("stepsPerSecond");
  if (rate != told.end() && rate->is_number()) progress["stepsPerSecond"] = *rate;
  take_plan(told, progress);
  take_checkpoint(told, progress);
  take_changes(told, view, progress);
  view.status.set("progress", std::move(progress));
}

}  // namespace corro::kube
