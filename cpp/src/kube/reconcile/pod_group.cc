#include "kube/reconcile/pod_group.h"

#include <fmt/format.h>

#include "kube/job/resource_totals.h"
#include "kube/reconcile/pod_view.h"

namespace corro::kube {
namespace {

Gang first_served(const Served& served) {
  if (!served.native_gang.empty()) return Gang::kNative;
  if (served.volcano) return Gang::kVolcano;
  return served.scheduler_plugins ? Gang::kSchedulerPlugins : Gang::kOff;
}

bool is_served(Gang gang, const Served& served) {
  switch (gang) {
    case Gang::kNative:
      return !served.native_gang.empty();
    case Gang::kVolcano:
      return served.volcano;
    case Gang::kSchedulerPlugins:
      return served.scheduler_plugins;
    case Gang::kOff:
    case Gang::kAuto:
      break;
  }
  return true;
}

std::string_view api_of(Gang gang) {
  switch (gang) {
    case Gang::kNative:
      return "scheduling.k8s.io";
    case Gang::kVolcano:
      return "scheduling.volcano.sh";
    case Gang::kSchedulerPlugins:
      return "scheduling.x-k8s.io";
    case Gang::kOff:
    case Gang::kAuto:
      break;
  }
  return "";
}

/// The operator's flag decides for MPIJobs, as it always did.
GangChoice choice_of_flag(const std::string& flag) {
  if (flag.empty()) return {};
  if (flag == "native") return {.gang = Gang::kNative};
  if (flag == "volcano") return {.gang = Gang::kVolcano, .scheduler = flag};
  return {.gang = Gang::kSchedulerPlugins, .scheduler = flag};
}

std::string priority_class_in(const Json& pod_template) {
  return text_in(object_in(pod_template, "spec"), "priorityClassName");
}

/// The policy's, the launcher's, or the workers'.
std::string priority_class_of(const JobSpec& spec) {
  if (!spec.scheduling.priority_class.empty()) return spec.scheduling.priority_class;
  if (!spec.priority_class.empty()) return spec.priority_class;
  const std::string launcher =
      spec.launcher ? priority_class_in(spec.launcher->pod_template) : std::string();
  return launcher.empty() ? priority_class_in(spec.worker.pod_template) : launcher;
}

void add_volcano(const JobSpec& spec, Json& fields) {
  fields["minMember"] = gang_size(spec);
  const std::string& queue = spec.is_mpi() ? spec.scheduling.queue : spec.queue;
  if (!queue.empty()) fields["queue"] = queue;
  const std::string priority = priority_class_of(spec);
  if (!priority.empty()) fields["priorityClassName"] = priority;
}

/// What has to be free before any pod of the gang starts: the user's word, or what the pods ask
/// for, the launcher's first.
Json least_resources(const JobSpec& spec) {
  if (spec.scheduling.min_resources.is_object()) return spec.scheduling.min_resources;
  ResourceTotals totals;
  int pods = gang_size(spec);
  if (spec.launcher && !spec.launcher_waits_for_workers && pods > 0) {
    totals.add(spec.launcher->pod_template, 1);
    --pods;
  }
  totals.add(spec.worker.pod_template, pods);
  return totals.to_json();
}

}  // namespace

GangChoice choose_gang(const JobSpec& spec, const Options& options) {
  GangChoice choice = choice_of_flag(options.gang_scheduler);
  if (!spec.is_mpi()) {
    choice = {};
    choice.gang = spec.gang == Gang::kAuto ? first_served(options.served) : spec.gang;
    if (choice.gang == Gang::kVolcano) choice.scheduler = "volcano";
    if (choice.gang == Gang::kSchedulerPlugins) choice.scheduler = options.plugins_scheduler;
  }
  if (!is_served(choice.gang, options.served)) choice.missing = api_of(choice.gang);
  // minCount of an in-tree group cannot be changed: another count is another group.
  choice.group =
      choice.gang == Gang::kNative ? fmt::format("{}-{}", spec.name, gang_size(spec)) : spec.name;
  return choice;
}

int gang_size(const JobSpec& spec) {
  if (!spec.is_mpi()) return spec.least_workers;
  const bool launcher_counts = spec.launcher.has_value() && !spec.launcher_waits_for_workers;
  const int pods = spec.workers + (launcher_counts ? 1 : 0);
  if (!spec.scheduling.min_available) return pods;
  // A gang that waits for a launcher which waits for the gang would never start.
  return std::min(*spec.scheduling.min_available, pods);
}

Json pod_group(const JobSpec& spec, const GangChoice& choice, const Options& options) {
  const char* version = choice.gang == Gang::kVolcano ? "v1beta1" : "v1alpha1";
  Json group = Json::object(
      {{"kind", "PodGroup"}, {"metadata", metadata_of(spec, choice.group, object_labels(spec))}});
  group["apiVersion"] =
      fmt::format("{}/{}", api_of(choice.gang),
                  choice.gang == Gang::kNative ? options.served.native_gang : std::string(version));
  Json fields = Json::object();
  if (choice.gang == Gang::kNative) {
    fields["schedulingPolicy"]["gang"]["minCount"] = gang_size(spec);
    group["spec"] = std::move(fields);
    return group;
  }
  if (choice.gang == Gang::kVolcano) add_volcano(spec, fields);
  if (choice.gang == Gang::kSchedulerPlugins) {
    fields["minMember"] = gang_size(spec);
    fields["scheduleTimeoutSeconds"] = spec.scheduling.timeout_seconds;
  }
  Json resources = least_resources(spec);
  if (!resources.empty()) fields["minResources"] = std::move(resources);
  group["spec"] = std::move(fields);
  return group;
}

bool starts_by_kueue(const JobSpec& spec, const GangChoice& choice) {
  const bool is_queued = !spec.is_mpi() && !spec.queue.empty() && choice.gang != Gang::kVolcano;
  return is_queued && !spec.is_elastic();
}

void join_queue(const JobSpec& spec, const GangChoice& choice, int round, Json& pod) {
  if (spec.is_mpi() || spec.queue.empty() || choice.gang == Gang::kVolcano) return;
  Json& metadata = pod["metadata"];
  metadata["labels"][kQueueLabel] = spec.queue;
  if (!starts_by_kueue(spec, choice)) return;
  // A label's value has at most 63 characters. Another job of this name may be on its way out.
  constexpr size_t kMostOfName = 40;
  constexpr size_t kMostOfUid = 8;
  metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = fmt::format(
      "{}-{}-{}", spec.name.substr(0, kMostOfName), spec.uid.substr(0, kMostOfUid), round);
  metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = std::to_string(spec.workers);
  // Else Kueue keeps quota and pods until others take the place of those that have ended.
  metadata["annotations"]["kueue.x-k8s.io/retriable-in-group"] = "false";
}

void join_gang(const GangChoice& choice, Json& pod) {
  if (choice.gang == Gang::kNative)
    pod["spec"]["schedulingGroup"] = Json::object({{"podGroupName", choice.group}});
  if (choice.gang == Gang::kVolcano)
    pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = choice.group;
  if (choice.gang == Gang::kSchedulerPlugins)
    pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = choice.group;
  if (!choice.scheduler.empty()) pod["spec"]["schedulerName"] = choice.scheduler;
}

}  // namespace corro::kube
