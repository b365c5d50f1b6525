#include "kube/reconcile/trimmed.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#include "kube/job/names.h"
#include "kube/reconcile/own_container.h"
#include "kube/reconcile/pod_view.h"

namespace corro::kube {
namespace {

using Fields = std::initializer_list<std::string_view>;

Json only(const Json& object, Fields fields) {
  Json kept = Json::object();
  for (const std::string_view field : fields) {
    if (const auto found = object.find(field); found != object.end())
      kept[std::string(field)] = *found;
  }
  return kept;
}

Json only_each(const Json& object, std::string_view list, Fields fields) {
  Json kept = Json::array();
  const auto found = object.find(list);
  if (found == object.end() || !found->is_array()) return kept;
  for (const Json& item : *found) {
    if (item.is_object()) kept.push_back(only(item, fields));
  }
  return kept;
}

Json pod_metadata(const Json& metadata) {
  Json kept =
      only(metadata, {"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"});
  kept["labels"] = only(object_in(metadata, "labels"),
                        {kUidLabel, kRoleLabel, kIndexLabel, kGenerationLabel, kQueueLabel});
  kept["annotations"] = only(object_in(metadata, "annotations"), {kRoundAnnotation});
  kept["ownerReferences"] = only_each(metadata, "ownerReferences", {"uid", "controller"});
  return kept;
}

bool is_read(const Json& condition) {
  constexpr std::array kRead = {"Ready", "PodScheduled", "PodReadyToStartContainers",
                                "DisruptionTarget", "TerminationTarget"};
  const std::string type = text_in(condition, "type");
  return std::find(kRead.begin(), kRead.end(), type) != kRead.end();
}

Json pod_status(const Json& status) {
  Json kept = only(status, {"phase", "reason", "message"});
  kept["conditions"] = Json::array();
  Json conditions = only_each(status, "conditions", {"type", "status", "reason", "message"});
  for (Json& condition : conditions) {
    if (is_read(condition)) kept["conditions"].push_back(std::move(condition));
  }
  for (const char* list : {"containerStatuses", "initContainerStatuses"}) {
    if (status.contains(list)) kept[list] = only_each(status, list, {"name", "ready", "state"});
  }
  return kept;
}

}  // namespace

void trim(Json& object) {
  if (text_in(object, "kind") == "Pod") {
    Json kept = only(object, {"apiVersion", "kind"});
    kept["metadata"] = pod_metadata(object_in(object, "metadata"));
    const Json& spec = object_in(object, "spec");
    kept["spec"] = only(spec, {"activeDeadlineSeconds", "nodeName", "restartPolicy",
                               "schedulingGates", "schedulingGroup"});
    kept["spec"]["containers"] = trimmed_containers(spec);
    kept["status"] = pod_status(object_in(object, "status"));
    object = std::move(kept);
    return;
  }
  object.erase("binaryData");  // The record of an elastic job.
  // Of an MPIJob they say who set sshAuthMountPath.
  const bool is_job = text_in(object, "kind") == "MPIJob";
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return;
  if (!is_job) metadata->erase("managedFields");
  if (const auto notes = metadata->find("annotations");
      notes != metadata->end() && notes->is_object())
    notes->erase("kubectl.kubernetes.io/last-applied-configuration");
}

}  // namespace corro::kube
