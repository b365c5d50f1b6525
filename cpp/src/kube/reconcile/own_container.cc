#include "kube/reconcile/own_container.h"

#include <algorithm>

#include "kube/reconcile/injection.h"
#include "kube/reconcile/pod_view.h"

namespace corro::kube {
namespace {

const Json& items_of(const Json& object, std::string_view field) {
  static const Json kNone = Json::array();
  if (!object.is_object()) return kNone;
  const auto found = object.find(field);
  return found == object.end() || !found->is_array() ? kNone : *found;
}

bool is_own(const Json& container) {
  const Json& variables = items_of(container, "env");
  return std::any_of(variables.begin(), variables.end(), [](const Json& variable) {
    return text_in(variable, "name") == kMemberVariable;
  });
}

const Json* find_own(const Json& pod_spec) {
  const Json& containers = items_of(pod_spec, "containers");
  const auto found = std::find_if(containers.begin(), containers.end(), is_own);
  return found == containers.end() ? nullptr : &*found;
}

/// The container's policy, where it has one of its own, is before the pod's. Rules of the former
/// may choose any exit code: after a failure the pod's phase tells what they chose.
bool is_started_again(const Json& pod_spec, const Json& container, int64_t code) {
  std::string policy = text_in(container, "restartPolicy");
  if (policy.empty()) policy = text_in(pod_spec, "restartPolicy");
  if (code != 0 && !items_of(container, "restartPolicyRules").empty()) return true;
  if (policy == "OnFailure") return code != 0;
  return policy != "Never";
}

bool is_ready_or_over(const Json& status) {
  return status.value("ready", Json()) == Json(true) ||
         object_in(status, "state").contains("terminated");
}

void read_own_end(const Json& pod_spec, const Json& container, OwnContainer& own) {
  const Json& ended = object_in(object_in(*own.status, "state"), "terminated");
  const auto code = ended.find("exitCode");
  if (code == ended.end() || !code->is_number_integer()) return;
  own.has_ended = !is_started_again(pod_spec, container, code->get<int64_t>());
  own.has_failed = own.has_ended && *code != 0;
}

void read_others(const Json& status, OwnContainer& own) {
  own.is_ready = own.status->value("ready", Json()) == Json(true);
  for (const Json& other : items_of(status, "containerStatuses")) {
    if (&other == own.status || !other.is_object()) continue;
    own.is_ready = own.is_ready && is_ready_or_over(other);
    if (!own.has_ended || object_in(other, "state").contains("terminated")) continue;
    own.others_that_run += (own.others_that_run.empty() ? "" : ", ") + text_in(other, "name");
  }
}

}  // namespace

OwnContainer own_container_of(const Json& pod) {
  OwnContainer own;
  const Json& pod_spec = object_in(pod, "spec");
  const Json* container = find_own(pod_spec);
  if (container == nullptr) return own;
  own.is_known = true;
  const Json& status = object_in(pod, "status");
  const Json& statuses = items_of(status, "containerStatuses");
  const std::string name = text_in(*container, "name");
  const auto found = std::find_if(statuses.begin(), statuses.end(), [&](const Json& each) {
    return !name.empty() && text_in(each, "name") == name;
  });
  if (found == statuses.end()) return own;
  own.status = &*found;
  read_own_end(pod_spec, *container, own);
  read_others(status, own);
  return own;
}

Json trimmed_containers(const Json& pod_spec) {
  Json kept = Json::array();
  const Json* own = find_own(pod_spec);
  if (own == nullptr) return kept;
  Json container = Json::object();
  for (const char* field : {"name", "restartPolicy", "restartPolicyRules"}) {
    if (own->contains(field)) container[field] = (*own)[field];
  }
  container["env"] = Json::array({Json::object({{"name", kMemberVariable}})});
  kept.push_back(std::move(container));
  return kept;
}

}  // namespace corro::kube
