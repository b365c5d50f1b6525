#include <array>

#include <fmt/format.h>

#include "kube/job/job_readers.h"

namespace corro::kube {
namespace {

constexpr std::string_view kRootSsh = "/root/.ssh";

/// True if somebody's field manager says that a user wrote spec.sshAuthMountPath. A create or an
/// update owns the schema's defaults too, and the MPI Operator's schema has one for this field;
/// ours has one for writtenAs alone, which tells that it was ours.
bool user_set_ssh_path(const Json& object) {
  const Json::json_pointer managers("/metadata/managedFields");
  if (!object.is_object() || !object.contains("metadata") || !object["metadata"].is_object() ||
      !object.contains(managers) || !object[managers].is_array())
    return false;
  for (const Json& manager : object[managers]) {
    const auto fields = manager.is_object() ? manager.find("fieldsV1") : manager.end();
    if (fields == manager.end() || !fields->is_object()) continue;
    const auto spec = fields->find("f:spec");
    if (spec == fields->end() || !spec->is_object() || !spec->contains("f:sshAuthMountPath"))
      continue;
    const bool is_applied = manager.value("operation", Json()) == Json("Apply");
    if (is_applied || spec->contains("f:writtenAs")) return true;
  }
  return false;
}

/// The queue that Volcano's own annotation names.
std::string annotated_queue(const Json& object) {
  const Json::json_pointer place("/metadata/annotations/scheduling.volcano.sh~1queue-name");
  if (!object.contains(place) || !object[place].is_string()) return "";
  return object[place].get<std::string>();
}

RestartPolicy read_restart_policy(FieldReader& fields, MpiVersion version, RestartPolicy fallback) {
  const bool never = fallback == RestartPolicy::kNever;
  if (version == MpiVersion::kV2beta1) {
    const size_t choice = fields.choice("restartPolicy", {"Never", "OnFailure"}, never ? 0 : 1);
    return choice == 0 ? RestartPolicy::kNever : RestartPolicy::kOnFailure;
  }
  const size_t choice = fields.choice(
      "restartPolicy", {"Never", "OnFailure", "Always", "ExitCode", ""}, never ? 0 : 1);
  if (choice == 4) return fallback;
  return choice == 0 || choice == 3 ? RestartPolicy::kNever : RestartPolicy::kOnFailure;
}

void read_launcher(FieldReader roles, ReadJob& job) {
  if (roles.require("Launcher") == nullptr) return;
  FieldReader fields = roles.object("Launcher");
  if (fields.integer("replicas", {INT32_MIN, INT32_MAX}).value_or(1) != 1)
    fields.fail("replicas", "must be 1");
  Role role = read_role(fields, job.problems);
  const bool is_v1 = job.spec.version == MpiVersion::kV1;
  role.restart = read_restart_policy(fields, job.spec.version,
                                     is_v1 ? RestartPolicy::kNever : RestartPolicy::kOnFailure);
  if (role.template_has_restart_policy)
    job.warnings.emplace_back(
        "Restart policy in pod template overridden by restart policy in replica spec");
  job.spec.launcher = std::move(role);
}

/// A launcher that is a host itself needs no workers.
void read_workers(FieldReader roles, ReadJob& job) {
  if (!roles.has("Worker")) return;
  FieldReader fields = roles.object("Worker");
  const int least = job.spec.launcher_is_worker ? 0 : 1;
  const auto replicas = fields.integer("replicas", {least, kMostWorkers});
  if (!fields.has("replicas") && least > 0)
    fields.fail("replicas", fmt::format("must be an integer from 1 to {}", kMostWorkers));
  job.spec.workers = static_cast<int>(replicas.value_or(0));
  job.spec.worker = read_role(fields, job.problems);
  job.spec.worker.restart = read_restart_policy(fields, job.spec.version, RestartPolicy::kNever);
}

void read_scheduling(FieldReader& run_policy, ReadJob& job) {
  SchedulingPolicy& policy = job.spec.scheduling;
  policy.is_set = run_policy.has("schedulingPolicy");
  FieldReader fields = run_policy.object("schedulingPolicy");
  if (const auto least = fields.integer("minAvailable", {0, kMostWorkers + 1}))
    policy.min_available = static_cast<int>(*least);
  policy.queue = fields.text("queue", "", 253);
  policy.priority_class = fields.text("priorityClass", "", 253);
  policy.timeout_seconds =
      static_cast<int>(fields.integer("scheduleTimeoutSeconds", {0, INT32_MAX}).value_or(0));
  if (!fields.has("minResources")) return;
  policy.min_resources = *fields.find("minResources");
  (void)fields.object("minResources");
}

CleanPods read_clean_pods(FieldReader& fields, CleanPods fallback) {
  constexpr std::array kPolicies = {CleanPods::kNone, CleanPods::kRunning, CleanPods::kAll};
  return kPolicies.at(
      fields.choice("cleanPodPolicy", {"None", "Running", "All"}, static_cast<size_t>(fallback)));
}

void read_deadlines(FieldReader& fields, ReadJob& job) {
  JobSpec& spec = job.spec;
  if (const auto limit = fields.integer("backoffLimit", {0, INT32_MAX}))
    spec.backoff_limit = static_cast<int>(*limit);
  if (const auto deadline = read_seconds(fields, "activeDeadlineSeconds", 0))
    spec.active_deadline = deadline;
}

/// runPolicy wins over the flat fields of v1alpha2 and v1.
void read_run_policy(FieldReader fields, ReadJob& job) {
  JobSpec& spec = job.spec;
  spec.clean_pods = read_clean_pods(fields, spec.clean_pods);
  read_deadlines(fields, job);
  spec.time_to_live = read_seconds(fields, "ttlSecondsAfterFinished", 0);
  spec.suspend = fields.boolean("suspend", false);
  spec.managed_by = fields.text("managedBy", "", 253);
  if (!spec.managed_by.empty())
    (void)fields.choice(
        "managedBy",
        {"kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue", "training.corro.dev/operator"},
        0);
  read_scheduling(fields, job);
}

MpiImplementation read_implementation(FieldReader& fields, std::string_view field,
                                      std::string_view intel) {
  constexpr std::array kKnown = {MpiImplementation::kOpenMpi, MpiImplementation::kIntel,
                                 MpiImplementation::kMpich};
  return kKnown.at(fields.choice(field, {"OpenMPI", intel, "MPICH"}, 0));
}

/// v1alpha2 and later: two roles.
void read_roles(const Json& object, FieldReader& fields, ReadJob& job) {
  JobSpec& spec = job.spec;
  const bool is_v2 = spec.version == MpiVersion::kV2beta1;
  spec.slots = static_cast<int>(fields.integer("slotsPerWorker", {0, kMostSlots}).value_or(1));
  if (is_v2) spec.launcher_is_worker = fields.boolean("runLauncherAsWorker", false);
  if (fields.require("mpiReplicaSpecs") != nullptr) {
    read_launcher(fields.object("mpiReplicaSpecs"), job);
    read_workers(fields.object("mpiReplicaSpecs"), job);
  }
  if (!is_v2) {
    spec.clean_pods = read_clean_pods(fields, CleanPods::kNone);
    read_deadlines(fields, job);
    spec.main_container = fields.text("mainContainer", "", 63);
  }
  read_run_policy(fields.object("runPolicy"), job);
  if (spec.version == MpiVersion::kV1alpha2)
    spec.implementation = read_implementation(fields, "mpiDistribution", "IntelMPI");
  if (!is_v2) return;
  spec.implementation = read_implementation(fields, "mpiImplementation", "Intel");
  spec.launcher_waits_for_workers =
      fields.choice("launcherCreationPolicy", {"AtStartup", "WaitForWorkersReady"}, 0) == 1;
  const std::string ssh = fields.text("sshAuthMountPath", "", 1024);
  if (fields.has("sshAuthMountPath") && ssh.empty())
    fields.fail("sshAuthMountPath", "must not be empty");
  if (ssh != kRootSsh || user_set_ssh_path(object)) spec.ssh_mount_path = ssh;
}

/// How many workers of how many units v1alpha1 asks for by a total.
void divide_units(FieldReader& fields, std::string_view field, int64_t per_node, ReadJob& job,
                  int64_t& units) {
  const int64_t total = fields.integer(field, {1, INT32_MAX}).value_or(1);
  if (total >= per_node && total % per_node != 0)
    return fields.fail(field,
                       fmt::format("must be a multiple of {}, the units of a node", per_node));
  units = std::min(total, per_node);
  if (total / units > kMostWorkers)
    return fields.fail(field, fmt::format("makes more than {} workers", kMostWorkers));
  job.spec.workers = static_cast<int>(total / units);
}

/// A copy of v1alpha1's one template for a role, with its units as the limit of container 0.
Role role_of_template(const Role& both, const std::string& resource, int64_t units) {
  Role role = both;
  Json* container = role.pod_template.is_object() && role.pod_template.contains("spec")
                        ? &role.pod_template["spec"]["containers"][0]
                        : nullptr;
  if (container == nullptr) return role;
  if (units < 0) {
    container->erase("resources");
  } else if (units > 0) {
    (*container)["resources"]["limits"][resource] = units;
  }
  return role;
}

int64_t units_in_limits(const Role& role, const std::string& resource) {
  const Json none;
  const Json& limits =
      role.pod_template.value(Json::json_pointer("/spec/containers/0/resources/limits"), none);
  if (!limits.is_object()) return 0;
  const auto found = limits.find(resource);
  if (found == limits.end()) return 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  const std::string text = found->is_string() ? found->get<std::string>() : "";
  const bool is_number =
      !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::stoi(text) : 0;
}

/// v1alpha1: one template, and a total of units or a number of replicas.
void read_units(FieldReader& fields, const ReadOptions& options, ReadJob& job) {
  JobSpec& spec = job.spec;
  const std::string resource =
      fields.text("processingResourceType", options.processing_resource, 253);
  const bool by_gpus = fields.has("gpus");
  const bool by_units = fields.has("processingUnits");
  if (by_gpus && by_units) fields.fail("gpus", "and processingUnits exclude each other");
  if ((by_gpus || by_units) && fields.has("replicas"))
    fields.fail("replicas", "and a number of units exclude each other");
  Role both = read_role(fields, job.problems);
  if (both.template_has_restart_policy) {
    FieldReader pod = fields.object("template").object("spec");
    const size_t policy = pod.choice("restartPolicy", {"OnFailure", "Never", "Always", ""}, 0);
    both.restart = policy == 1 ? RestartPolicy::kNever : RestartPolicy::kOnFailure;
  } else {
    both.restart = RestartPolicy::kOnFailure;
  }
  int64_t units = 0;
  if (by_gpus || by_units) {
    const std::string_view per_node = by_gpus ? "gpusPerNode" : "processingUnitsPerNode";
    divide_units(fields, by_gpus ? "gpus" : "processingUnits",
                 fields.integer(per_node, {1, INT32_MAX}).value_or(options.units_per_node), job,
                 units);
  } else {
    spec.workers = static_cast<int>(fields.integer("replicas", {1, kMostWorkers}).value_or(1));
    if (!fields.has("replicas")) fields.fail("replicas", "is missing, and so is processingUnits");
    units = units_in_limits(both, resource);
  }
  spec.slots = static_cast<int>(
      fields.integer("slotsPerWorker", {1, kMostSlots}).value_or(std::max<int64_t>(units, 1)));
  spec.worker = role_of_template(both, resource, units);
  spec.worker.restart = RestartPolicy::kNever;
  spec.launcher = role_of_template(both, resource, -1);
  spec.launcher_waits_for_workers = true;
  read_deadlines(fields, job);
  if (!spec.backoff_limit) spec.backoff_limit = 6;
}

}  // namespace

void read_mpi_job(const Json& object, FieldReader fields, const ReadOptions& options,
                  ReadJob& job) {
  JobSpec& spec = job.spec;
  spec.kind = JobKind::kMpiJob;
  constexpr std::array kVersions = {MpiVersion::kV1alpha1, MpiVersion::kV1alpha2, MpiVersion::kV1,
                                    MpiVersion::kV2beta1};
  spec.version =
      kVersions.at(fields.choice("writtenAs", {"v1alpha1", "v1alpha2", "v1", "v2beta1"}, 3));
  if (spec.version == MpiVersion::kV1alpha1) {
    read_units(fields, options, job);
  } else {
    read_roles(object, fields, job);
  }
  if (spec.scheduling.queue.empty()) spec.scheduling.queue = annotated_queue(object);
  spec.least_workers = spec.workers;
  spec.most_workers = spec.workers;
}

}  // namespace corro::kube
