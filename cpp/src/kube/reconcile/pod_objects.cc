#include "kube/reconcile/pod_objects.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/job/mpi_environment.h"
#include "kube/reconcile/pod_view.h"

namespace corro::kube {
namespace {

constexpr const char* kConfigVolume = "mpi-job-config";
constexpr const char* kSshVolume = "ssh-auth";

/// A pod with the template's labels, annotations and spec, and ours over them.
Json pod_of_template(const JobSpec& spec, const Json& pod_template, const std::string& name,
                     const Labels& labels) {
  Json pod = Json::object({{"apiVersion", "v1"}, {"kind", "Pod"}});
  pod["metadata"] = metadata_of(spec, name, {});
  const Json own = pod_template.value("metadata", Json::object());
  pod["metadata"]["labels"] =
      own.is_object() ? own.value("labels", Json::object()) : Json::object();
  if (!pod["metadata"]["labels"].is_object()) pod["metadata"]["labels"] = Json::object();
  for (const auto& [key, value] : labels) pod["metadata"]["labels"][key] = value;
  const Json annotations = own.is_object() ? own.value("annotations", Json()) : Json();
  if (annotations.is_object()) pod["metadata"]["annotations"] = annotations;
  pod["spec"] = pod_template.value("spec", Json::object());
  return pod;
}

void set_host(const PodContext& context, const std::string& host, Json& pod_spec) {
  const JobSpec& spec = context.spec;
  pod_spec["hostname"] = host;
  pod_spec["subdomain"] = spec.name;
  if (pod_spec.value("hostNetwork", Json()) == Json(true))
    pod_spec["dnsPolicy"] = "ClusterFirstWithHostNet";
}

/// Intel MPI and MPICH reach the launcher by its bare host name.
void add_search_domain(const PodContext& context, Json& pod_spec) {
  const std::string& domain = context.options.cluster_domain;
  Json& dns = pod_spec["dnsConfig"];
  if (!dns.is_object()) dns = Json::object();
  append(dns, "searches",
         fmt::format("{}.{}.svc.{}", context.spec.name, context.spec.space,
                     domain.empty() ? "cluster.local" : domain));
}

void add_config(const JobSpec& spec, bool is_launcher, Json& pod_spec) {
  Json items = Json::array();
  const auto add = [&](const char* file, int mode) {
    items.push_back(Json::object({{"key", file}, {"path", file}, {"mode", mode}}));
  };
  if (is_launcher) {
    add("hostfile", 0444);
    add("discover_hosts.sh", 0555);
  }
  if (spec.is_old_mpi()) add("kubexec.sh", 0555);
  if (items.empty()) return;
  const Json source = Json::object({{"name", config_name(spec)}, {"items", std::move(items)}});
  append(pod_spec, "volumes", Json::object({{"name", kConfigVolume}, {"configMap", source}}));
  append(pod_spec["containers"][0], "volumeMounts",
         Json::object({{"name", kConfigVolume}, {"mountPath", kConfigPath}}));
}

void add_ssh(const JobSpec& spec, Json& pod_spec) {
  if (spec.ssh_mount_path.empty()) return;
  const Json items =
      Json::array({Json::object({{"key", "ssh-privatekey"}, {"path", "id_rsa"}}),
                   Json::object({{"key", "ssh-publickey"}, {"path", "id_rsa.pub"}}),
                   Json::object({{"key", "ssh-publickey"}, {"path", "authorized_keys"}})});
  Json source = Json::object({{"secretName", ssh_secret_name(spec)}, {"items", items}});
  if (spec.ssh_mount_path == "/root/.ssh") source["defaultMode"] = 0600;
  append(pod_spec, "volumes", Json::object({{"name", kSshVolume}, {"secret", std::move(source)}}));
  append(pod_spec["containers"][0], "volumeMounts",
         Json::object({{"name", kSshVolume}, {"mountPath", spec.ssh_mount_path}}));
}

void add_claims(const JobSpec& spec, Json& pod_spec) {
  for (const ClaimMount& claim : spec.claims) {
    const std::string name = "corro-" + claim.name;
    const Json source = Json::object({{"claimName", claim.claim}, {"readOnly", claim.read_only}});
    append(pod_spec, "volumes", Json::object({{"name", name}, {"persistentVolumeClaim", source}}));
    Json place =
        Json::object({{"name", name}, {"mountPath", claim.path}, {"readOnly", claim.read_only}});
    if (!claim.sub_path.empty()) place["subPath"] = claim.sub_path;
    append(pod_spec["containers"][0], "volumeMounts", std::move(place));
  }
}

/// CorroJob's priority and queue.
void add_scheduling(const PodContext& context, Json& pod) {
  const JobSpec& spec = context.spec;
  if (spec.is_mpi()) return;
  if (!spec.priority_class.empty()) pod["spec"]["priorityClassName"] = spec.priority_class;
  join_queue(spec, context.gang, context.round, pod);
}

const char* text_of(RestartPolicy policy) {
  return policy == RestartPolicy::kNever ? "Never" : "OnFailure";
}

void add_variables(const Variables& variables, Json& container) {
  for (const auto& [name, value] : variables) add_variable(container, name, value);
}

/// The head goes where the workers may, and is not the first to go for them.
void follow_workers(const JobSpec& spec, Json& pod_spec) {
  const Json& own = object_in(spec.worker.pod_template, "spec");
  for (const char* field : {"imagePullSecrets", "priorityClassName", "tolerations"})
    if (own.contains(field)) pod_spec[field] = own[field];
  if (!spec.priority_class.empty()) pod_spec["priorityClassName"] = spec.priority_class;
}

bool tolerates(const Json& toleration, std::string_view key) {
  const std::string effect = text_in(toleration, "effect");
  const std::string own = text_in(toleration, "key");
  return (own.empty() || own == key) && (effect.empty() || effect == "NoExecute");
}

/// A pod stays for 300 s on a node that does not answer, if it does not say how long; its job's
/// head has given it up after 10 s. After an API server was away all nodes look dead until their
/// next heartbeats, which kubelets send every 10 s: pods stay for two more.
void leave_dead_node(Json& pod_spec) {
  constexpr int kStay = 30;
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    const Json own = pod_spec.value("tolerations", Json::array());
    if (!own.is_array()) return;  // The API server will say so.
    if (std::ranges::any_of(own, [&](const Json& each) { return tolerates(each, key); })) continue;
    append(pod_spec, "tolerations",
           Json::object({{"key", key},
                         {"operator", "Exists"},
                         {"effect", "NoExecute"},
                         {"tolerationSeconds", kStay}}));
  }
}

Json launcher_of_template(const PodContext& context, int generation) {
  const JobSpec& spec = context.spec;
  Json pod = pod_of_template(spec, spec.launcher->pod_template,
                             pod_name(spec, Member::kLauncher, 0, generation),
                             pod_labels(spec, Member::kLauncher, 0, generation));
  Json& pod_spec = pod["spec"];
  set_host(context, launcher_host(spec), pod_spec);
  pod_spec["restartPolicy"] = text_of(spec.launcher->restart);
  const bool real_ssh = !spec.ssh_mount_path.empty();
  add_variables(launcher_variables(spec, real_ssh ? "" : kRemoteShell), pod_spec["containers"][0]);
  add_config(spec, true, pod_spec);
  add_ssh(spec, pod_spec);
  (void)wrap_launcher_command(pod_spec["containers"][0]);
  inject_agent(spec, {Member::kLauncher, 0, generation, context.head_address}, context.options,
               pod_spec);
  leave_dead_node(pod_spec);
  // An in-tree group is left alone by what starts once all of it runs: it could only hold that up.
  const bool is_late = context.gang.gang == Gang::kNative && spec.launcher_waits_for_workers;
  if (!is_late) join_gang(context.gang, pod);
  return pod;
}

}  // namespace

Json head_pod(const PodContext& context, int generation) {
  const JobSpec& spec = context.spec;
  Json pod = Json::object({{"apiVersion", "v1"}, {"kind", "Pod"}});
  pod["metadata"] = metadata_of(spec, pod_name(spec, Member::kHead, 0, generation),
                                pod_labels(spec, Member::kHead, 0, generation));
  pod["metadata"]["annotations"][std::string(kRoundAnnotation)] = std::to_string(context.round);
  pod["spec"] = head_pod_spec(spec, generation, context.round, context.options);
  follow_workers(spec, pod["spec"]);
  leave_dead_node(pod["spec"]);
  return pod;
}

Json worker_pod(const PodContext& context, int index, int generation) {
  const JobSpec& spec = context.spec;
  Json pod = pod_of_template(spec, spec.worker.pod_template,
                             pod_name(spec, Member::kWorker, index, generation),
                             pod_labels(spec, Member::kWorker, index, generation));
  pod["metadata"]["annotations"][std::string(kRoundAnnotation)] = std::to_string(context.round);
  Json& pod_spec = pod["spec"];
  set_host(context, worker_host(spec, index), pod_spec);
  if (spec.is_mpi()) add_search_domain(context, pod_spec);
  pod_spec["restartPolicy"] = text_of(spec.worker.restart);
  add_variables(worker_variables(spec), pod_spec["containers"][0]);
  if (spec.is_mpi()) add_config(spec, false, pod_spec);
  add_ssh(spec, pod_spec);
  add_claims(spec, pod_spec);
  wrap_worker_command(spec, pod_spec["containers"][0]);
  inject_agent(spec, {Member::kWorker, index, generation, context.head_address}, context.options,
               pod_spec);
  leave_dead_node(pod_spec);
  add_scheduling(context, pod);
  join_gang(context.gang, pod);
  return pod;
}

Json launcher_pod(const PodContext& context, int generation) {
  return launcher_of_template(context, generation);
}

Json launcher_job(const PodContext& context) {
  const JobSpec& spec = context.spec;
  Json pod = launcher_of_template(context, 0);
  Json job = Json::object({{"apiVersion", "batch/v1"}, {"kind", "Job"}});
  job["metadata"] = metadata_of(spec, launcher_host(spec), object_labels(spec));
  Json pod_template =
      Json::object({{"metadata", Json::object()}, {"spec", std::move(pod["spec"])}});
  pod_template["metadata"]["labels"] = std::move(pod["metadata"]["labels"]);
  if (pod["metadata"].contains("annotations"))
    pod_template["metadata"]["annotations"] = std::move(pod["metadata"]["annotations"]);
  job["metadata"]["annotations"][std::string(kHashAnnotation)] = hash_of(pod_template);
  Json fields =
      Json::object({{"podReplacementPolicy", "Failed"}, {"template", std::move(pod_template)}});
  if (spec.backoff_limit) fields["backoffLimit"] = *spec.backoff_limit;
  if (spec.active_deadline) fields["activeDeadlineSeconds"] = spec.active_deadline->count();
  job["spec"] = std::move(fields);
  return job;
}

bool launcher_has_command(const JobSpec& spec) {
  if (!spec.launcher) return true;
  const Json::json_pointer field("/spec/containers/0/command");
  return !spec.launcher->pod_template.value(field, Json::array()).empty();
}

}  // namespace corro::kube
