#include "kube/reconcile/status_draft.h"

#include "kube/reconcile/pod_view.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

int small_number(const Json& object, std::string_view field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_number_integer()) return 0;
  const auto value = found->get<int64_t>();
  return value < 0 || value > INT32_MAX / 2 ? 0 : static_cast<int>(value);
}

/// A copy without what may wait: counts, words, and that pods were seen.
Json without_minor(Json status) {
  for (const char* field : {"ready", "replicaStatuses", "launcherStatus", "workerReplicas"})
    status.erase(field);
  if (status.contains("progress"))  // A change is told as an event, once.
    status["progress"] = text_in(object_in(status, "progress"), "lastChangeTime");
  if (status.contains("conditions") && status["conditions"].is_array()) {
    for (Json& condition : status["conditions"]) {
      if (!condition.is_object()) continue;
      condition.erase("message");
      condition.erase("lastUpdateTime");
    }
  }
  if (!status.contains("members") || !status["members"].is_object()) return status;
  Json members = Json::object();
  for (auto& [key, state] : status["members"].items()) {
    if (!state.is_object()) continue;
    state.erase("seen");
    if (!state.empty()) members[key] = state;
  }
  status.erase("members");
  if (!members.empty()) status["members"] = std::move(members);
  return status;
}

}  // namespace

StatusDraft::StatusDraft(const Json& job, KubeTime now)
    : job_(job), now_(now), before_(object_in(job, "status")), status_(before_) {}

bool StatusDraft::exists() const { return before_.contains("state"); }

bool StatusDraft::is_finished() const { return is_true("Succeeded") || is_true("Failed"); }

const Json* StatusDraft::condition(std::string_view type) const {
  const auto conditions = status_.find("conditions");
  if (conditions == status_.end() || !conditions->is_array()) return nullptr;
  for (const Json& condition : *conditions) {
    if (text_in(condition, "type") == type) return &condition;
  }
  return nullptr;
}

bool StatusDraft::is_true(std::string_view type) const {
  const Json* found = condition(type);
  return found != nullptr && text_in(*found, "status") == "True";
}

std::string StatusDraft::message_of(std::string_view type) const {
  const Json* found = condition(type);
  return found == nullptr ? "" : text_in(*found, "message");
}

std::string StatusDraft::reason_of(std::string_view type) const {
  const Json* found = condition(type);
  return found == nullptr ? "" : text_in(*found, "reason");
}

std::optional<KubeTime> StatusDraft::transition_of(std::string_view type) const {
  const Json* found = condition(type);
  if (found == nullptr) return {};
  return time_in(*found, "lastTransitionTime");
}

bool StatusDraft::set_condition(std::string_view type, bool status, std::string_view reason,
                                std::string_view message) {
  const Json* old = condition(type);
  const std::string value = status ? "True" : "False";
  const bool same_status = old != nullptr && text_in(*old, "status") == value;
  const bool same = same_status && text_in(*old, "reason") == reason;
  if (same && text_in(*old, "message") == message) return false;
  Json next = Json::object({{"type", type},
                            {"status", value},
                            {"reason", reason},
                            {"message", message},
                            {"lastUpdateTime", time_text(now_)}});
  next["lastTransitionTime"] =
      same_status ? Json(text_in(*old, "lastTransitionTime")) : Json(time_text(now_));
  Json& conditions = status_["conditions"];
  if (!conditions.is_array()) conditions = Json::array();
  for (Json& place : conditions) {
    if (text_in(place, "type") != type) continue;
    place = std::move(next);
    return !same;
  }
  conditions.push_back(std::move(next));
  return true;
}

int64_t StatusDraft::number(std::string_view field) const { return small_number(status_, field); }

std::optional<KubeTime> StatusDraft::time(std::string_view field) const {
  return time_in(status_, field);
}

bool StatusDraft::flag(std::string_view field) const {
  const auto found = status_.find(field);
  return found != status_.end() && *found == Json(true);
}

std::string StatusDraft::text(std::string_view field) const { return text_in(status_, field); }

const Json& StatusDraft::object(std::string_view field) const { return object_in(status_, field); }

int64_t StatusDraft::count(std::string_view field, std::string_view name) const {
  return small_number(object_in(status_, field), name);
}

void StatusDraft::set_count(std::string_view field, std::string_view name, int64_t value) {
  Json& counts = status_[std::string(field)];
  if (!counts.is_object()) counts = Json::object();
  counts[std::string(name)] = value;
}

MemberState StatusDraft::member(const std::string& key) const {
  const Json& state = object_in(object_in(status_, "members"), key);
  return {small_number(state, "generation"), state.value("seen", Json()) == Json(true),
          state.value("done", Json()) == Json(true), small_number(state, "failures"),
          time_in(state, "notBefore")};
}

void StatusDraft::set_member(const std::string& key, const MemberState& state) {
  if (member(key) == state) return;
  Json& members = status_["members"];
  if (!members.is_object()) members = Json::object();
  Json value = Json::object();
  if (state.generation > 0) value["generation"] = state.generation;
  if (state.seen) value["seen"] = true;
  if (state.done) value["done"] = true;
  if (state.failures > 0) value["failures"] = state.failures;
  if (state.not_before) value["notBefore"] = time_text(*state.not_before);
  if (value.empty()) {
    members.erase(key);
  } else {
    members[key] = std::move(value);
  }
}

Json StatusDraft::patch() const {
  Json change = merge_patch_between(before_, status_);
  if (change.empty()) return {};
  const std::string version = text_in(object_in(job_, "metadata"), "resourceVersion");
  return Json::object(
      {{"metadata", Json::object({{"resourceVersion", version}})}, {"status", std::move(change)}});
}

bool StatusDraft::is_urgent() const { return without_minor(before_) != without_minor(status_); }

Json merge_patch_between(const Json& before, const Json& after) {
  Json patch = Json::object();
  for (const auto& [key, value] : before.items()) {
    if (!after.contains(key)) patch[key] = nullptr;
  }
  for (const auto& [key, value] : after.items()) {
    const auto old = before.find(key);
    if (old != before.end() && value.is_object() && old->is_object()) {
      Json inner = merge_patch_between(*old, value);
      if (!inner.empty()) patch[key] = std::move(inner);
    } else if (old == before.end() || value != *old) {
      patch[key] = value;
    }
  }
  return patch;
}

}  // namespace corro::kube
