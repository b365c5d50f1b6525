#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "kube/job/job_readers.h"

namespace corro::kube {
namespace {

constexpr size_t kMostClaims = 16;

/// The agent starts it, and cannot know the image's own.
void check_command(FieldReader pod, const Json& pod_template) {
  const Json& container = pod_template["spec"]["containers"][0];
  const Json command = container.value("command", Json());
  if (!command.is_array() || command.empty() || command[0] == "")
    pod.fail("containers[0].command", "is needed: the image's own cannot be known");
}

void read_worker(FieldReader worker, ReadJob& job) {
  JobSpec& spec = job.spec;
  const auto target = worker.integer("target", {1, kMostWorkers});
  if (!worker.has("target")) worker.fail("target", "is missing");
  spec.workers = static_cast<int>(target.value_or(1));
  spec.least_workers =
      static_cast<int>(worker.integer("min", {1, kMostWorkers}).value_or(spec.workers));
  spec.has_least = worker.has("min");
  spec.most_workers =
      static_cast<int>(worker.integer("max", {1, kMostWorkers}).value_or(spec.workers));
  if (target && spec.least_workers > spec.workers) worker.fail("min", "must be at most target");
  if (target && spec.most_workers < spec.workers) worker.fail("max", "must be at least target");
  // The head of an elastic job gets its limit once, so a target cannot stand in for it.
  if (spec.has_least && !worker.has("max")) worker.fail("max", "is needed with min");
  spec.slots = static_cast<int>(worker.integer("slots", {1, kMostSlots}).value_or(1));
  spec.worker = read_role(worker, job.problems);
  FieldReader pod = worker.object("template").object("spec");
  if (spec.worker.pod_template.contains("spec")) check_command(pod, spec.worker.pod_template);
  if (!spec.worker.template_has_restart_policy) return;
  (void)pod.choice("restartPolicy", {"Never"}, 0);
}

void read_claim(FieldReader& fields, ClaimMount& mount) {
  if (!fields.has("claim")) fields.fail("claim", "is missing");
  mount.claim = fields.text("claim", "", 253);
  mount.path = fields.text("mountPath", mount.path, 1024);
  mount.sub_path = fields.text("subPath", "", 1024);
  if (mount.path.empty()) return fields.fail("mountPath", "is missing");
  if (mount.path.front() != '/' || mount.path.find(':') != std::string::npos)
    fields.fail("mountPath", "must be absolute and have no colon");
}

void read_data(FieldReader& fields, ReadJob& job) {
  const Json* list = fields.find("data");
  if (list == nullptr) return;
  if (!list->is_array() || list->size() > kMostClaims)
    return fields.fail("data", fmt::format("must be a list of at most {}", kMostClaims));
  for (size_t i = 0; i < list->size(); ++i) {
    FieldReader item((*list)[i], fmt::format("{}[{}]", fields.path_of("data"), i), job.problems);
    ClaimMount mount;
    mount.name = item.text("name", fmt::format("data-{}", i), 40);
    mount.read_only = item.boolean("readOnly", true);
    read_claim(item, mount);
    job.spec.claims.push_back(std::move(mount));
  }
}

/// Names and paths of the volumes: each once.
void check_claims(FieldReader& fields, ReadJob& job) {
  std::set<std::string> names;
  std::set<std::string> paths;
  for (const ClaimMount& mount : job.spec.claims) {
    if (!names.insert(mount.name).second)
      fields.fail("data", fmt::format("two volumes have the name {}", mount.name));
    if (!paths.insert(mount.path).second)
      fields.fail("data", fmt::format("two volumes are mounted at {}", mount.path));
  }
}

/// Pods have a volume at its parent: there the agents, whoever they run as, can make it.
void read_sync(FieldReader& fields, JobSpec& spec) {
  constexpr std::string_view kParent = "/workspace/";
  spec.sync = fields.text("sync", "", 255);
  if (spec.sync.empty()) return;
  const std::string name =
      spec.sync.starts_with(kParent) ? spec.sync.substr(kParent.size()) : std::string();
  if (name.empty() || name == "." || name == ".." || name.find_first_of("/:") != std::string::npos)
    fields.fail("sync", "must be /workspace/NAME");
}

void read_rule(FieldReader rules, Cause cause, RestartRule fallback, ReadJob& job) {
  FieldReader fields = rules.object(name_of(cause));
  RestartRule& rule = job.spec.restart[static_cast<size_t>(cause)];
  rule.limit = static_cast<int>(fields.integer("limit", {0, 10000}).value_or(fallback.limit));
  rule.backoff = std::chrono::seconds(
      fields.integer("backoffSeconds", {0, 3600}).value_or(fallback.backoff.count()));
  rule.most_backoff = std::chrono::seconds(
      fields.integer("maxBackoffSeconds", {0, 86400})
          .value_or(std::max(fallback.most_backoff.count(), rule.backoff.count())));
  if (rule.most_backoff < rule.backoff)
    fields.fail("maxBackoffSeconds", "must be at least backoffSeconds");
}

void read_restart(FieldReader rules, ReadJob& job) {
  using std::chrono::seconds;
  read_rule(rules, Cause::kUserError, {3, seconds(10), seconds(300)}, job);
  read_rule(rules, Cause::kLostPod, {1000, seconds(1), seconds(60)}, job);
  read_rule(rules, Cause::kOutOfMemory, {1, seconds(10), seconds(300)}, job);
  job.spec.restart_reset = seconds(rules.integer("resetAfterSeconds", {1, 86400}).value_or(600));
}

}  // namespace

void read_corro_job(FieldReader fields, ReadJob& job) {
  JobSpec& spec = job.spec;
  if (fields.require("worker") != nullptr) read_worker(fields.object("worker"), job);
  for (const std::string_view reserved : {"server", "coordinator"}) {
    if (fields.has(reserved)) fields.fail(reserved, "is reserved for a later release");
  }
  read_data(fields, job);
  if (fields.has("checkpoint")) {
    FieldReader checkpoint = fields.object("checkpoint");
    ClaimMount mount{.name = "checkpoint", .path = "/checkpoint"};
    read_claim(checkpoint, mount);
    spec.claims.push_back(std::move(mount));
  }
  check_claims(fields, job);
  read_sync(fields, spec);
  spec.priority_class = fields.text("priorityClass", "", 253);
  spec.queue = fields.text("queue", "", 63);
  constexpr std::array kGangs = {Gang::kAuto, Gang::kOff, Gang::kNative, Gang::kVolcano,
                                 Gang::kSchedulerPlugins};
  spec.gang =
      kGangs.at(fields.choice("gang", {"Auto", "Off", "Native", "Volcano", "SchedulerPlugins"}, 0));
  read_restart(fields.object("restart"), job);
  spec.active_deadline = read_seconds(fields, "activeDeadlineSeconds", 1);
  spec.time_to_live = read_seconds(fields, "ttlSecondsAfterFinished", 0);
  spec.suspend = fields.boolean("suspend", false);
  spec.managed_by = fields.text("managedBy", "", 253);
  if (!spec.managed_by.empty())
    (void)fields.choice("managedBy", {"training.corro.dev/operator", "kueue.x-k8s.io/multikueue"},
                        0);
}

}  // namespace corro::kube
