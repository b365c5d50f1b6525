// What tests see of a ClusterModel: conditions, status, what was made.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kube/reconcile/cluster_model.h"
#include "kube/reconcile/pod_view.h"

namespace corro::kube {

inline std::vector<std::string> names_made(const ClusterModel& cluster) {
  std::vector<std::string> names;
  for (const auto& [name, times] : cluster.creates) names.push_back(name);
  return names;
}

/// The change of the job's spec that gives it so many workers.
inline Json workers_of(const ClusterModel& cluster, int workers) {
  Json change = Json::object();
  if (cluster.job()["kind"] == "CorroJob") {
    change["worker"]["target"] = workers;
  } else {
    change["mpiReplicaSpecs"]["Worker"]["replicas"] = workers;
  }
  return change;
}

inline const Json& condition_of(const ClusterModel& cluster, const std::string& type) {
  static const Json kNone = Json::object();
  if (!cluster.job().contains("status")) return kNone;
  for (const Json& condition : cluster.job()["status"]["conditions"]) {
    if (condition["type"] == type) return condition;
  }
  return kNone;
}

/// What stands at a place of the status; null if there is nothing.
inline Json status_of(const ClusterModel& cluster, const char* pointer) {
  const Json& status = object_in(cluster.job(), "status");
  const Json::json_pointer place(pointer);
  return status.contains(place) ? status[place] : Json();
}

inline std::string reason_of(const ClusterModel& cluster, const std::string& type) {
  return condition_of(cluster, type).value("reason", "");
}

inline std::string message_of(const ClusterModel& cluster, const std::string& type) {
  return condition_of(cluster, type).value("message", "");
}

inline Json with(Json job, const char* merge_patch) {
  job["spec"].merge_patch(Json::parse(merge_patch));
  return job;
}

inline Json patched(const char* text) { return Json::parse(text); }

inline std::map<std::string, std::string> variables_of(const Json& container) {
  std::map<std::string, std::string> variables;
  for (const Json& variable : container["env"]) variables[variable["name"]] = variable["value"];
  return variables;
}

/// The pod that the launcher Job of `mnist` makes.
inline const Json& launcher_template(const ClusterModel& cluster) {
  return (*cluster.get("Job", "mnist-launcher"))["spec"]["template"];
}

}  // namespace corro::kube
