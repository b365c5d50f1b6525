#include "kube/reconcile/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/reconcile/launcher_end.h"
#include "kube/reconcile/make_objects.h"

namespace corro::kube {
namespace {

Json replica_counts(int active, int succeeded, int failed) {
  Json counts = Json::object();
  if (active > 0) counts["active"] = active;
  if (succeeded > 0) counts["succeeded"] = succeeded;
  if (failed > 0) counts["failed"] = failed;
  return counts;
}

int count_workers(const JobView& view, PodPhase phase) {
  int count = 0;
  for (int i = 0; i < view.spec.workers; ++i) {
    const PodView* pod = view.current(Member::kWorker, i);
    if (pod != nullptr && pod->phase == phase) ++count;
  }
  return count;
}

int failed_launchers(const JobView& view) {
  int failed = 0;
  for (const PodView& pod : view.pods) {
    if (pod.member == Member::kLauncher && pod.phase == PodPhase::kFailed) ++failed;
  }
  return failed;
}

void count_replicas(JobView& view, int ready) {
  const bool succeeded = view.status.is_true("Succeeded");
  const int running = running_launchers(view);
  if (view.spec.version == MpiVersion::kV1alpha1) {
    view.status.set("workerReplicas", ready);
    if (running > 0) view.status.set("launcherStatus", "Active");
    if (succeeded) view.status.set("launcherStatus", "Succeeded");
    if (view.status.is_true("Failed")) view.status.set("launcherStatus", "Failed");
    return;
  }
  Json replicas = Json::object();
  replicas["Launcher"] =
      replica_counts(succeeded ? 0 : running, succeeded ? 1 : 0, failed_launchers(view));
  replicas["Worker"] = replica_counts(count_workers(view, PodPhase::kRunning),
                                      count_workers(view, PodPhase::kSucceeded),
                                      count_workers(view, PodPhase::kFailed));
  view.status.set("replicaStatuses", std::move(replicas));
}

/// A claim that the workers mount: of the job, or of their template; "": none.
std::string first_claim(const JobSpec& spec) {
  if (!spec.claims.empty()) return spec.claims[0].claim;
  const Json& pod_spec = object_in(spec.worker.pod_template, "spec");
  const auto volumes = pod_spec.find("volumes");
  if (volumes == pod_spec.end() || !volumes->is_array()) return "";
  for (const Json& volume : *volumes) {
    const std::string claim = text_in(object_in(volume, "persistentVolumeClaim"), "claimName");
    if (!claim.empty()) return claim;
  }
  return "";
}

/// Nodes do not say that a claim is mounted elsewhere; they try for ever.
std::string trouble_with_claims(const JobView& view, const PodView& pod) {
  const auto is_elsewhere = [&pod](const PodView& other) {
    return other.member == Member::kWorker && other.is_bound() && !other.has_ended() &&
           other.node != pod.node;
  };
  const bool waits = pod.member == Member::kWorker && pod.waits_for_volumes;
  const std::string claim = waits ? first_claim(view.spec) : "";
  if (claim.empty()) return "";
  const auto other = std::ranges::find_if(view.pods, is_elsewhere);
  if (other == view.pods.end()) return "";
  return fmt::format(
      "waits on node {} for its volumes: is claim {} ReadWriteOnce? One node at a "
      "time mounts such a claim, and {} is on {}",
      pod.node, claim, other->name, other->node);
}

/// Of the pods that do not run, the first that is in trouble, or else the first that is prepared.
std::string first_trouble(const JobView& view) {
  std::string prepared;
  for (const PodView& pod : view.pods) {
    if (pod.has_ended() || pod.is_deleting) continue;
    const std::string trouble = pod.trouble.empty() ? trouble_with_claims(view, pod) : pod.trouble;
    if (!trouble.empty()) return fmt::format("; {}: {}", pod.name, trouble);
    if (prepared.empty() && !pod.preparation.empty())
      prepared = fmt::format("; {}: {}", pod.name, pod.preparation);
  }
  return prepared;
}

Block what_it_waits_for(const JobView& view, int ready) {
  if (view.blocked()) return *view.blocked();
  std::string message = fmt::format("{} of {} workers run", ready, view.spec.workers);
  if (view.spec.launcher && running_launchers(view) == 0 && ready == view.spec.workers)
    message += ", the launcher does not yet";
  return {"WaitingForPods", message + first_trouble(view)};
}

/// Workers that have ended well and are not replaced yet: the job may be over, and its head's end
/// not be seen.
int workers_that_left(const JobView& view) { return count_workers(view, PodPhase::kSucceeded); }

/// An elastic job runs with fewer workers than are wanted.
bool runs_elastic(const JobView& view, int ready) {
  const PodView* head = view.current(Member::kHead, 0);
  return head != nullptr && head->is_ready &&
         ready + workers_that_left(view) >= view.spec.least_workers;
}

bool runs(const JobView& view, int ready) {
  if (view.spec.launcher && running_launchers(view) == 0) return false;
  int done = 0;
  for (int i = 0; i < view.spec.workers && !view.spec.is_mpi(); ++i)
    done += view.state(Member::kWorker, i).done ? 1 : 0;
  return ready + done >= view.spec.workers;
}

/// What an elastic job has not got of what is wanted, and why; "": nothing.
std::string missing_workers(const JobView& view, int ready) {
  if (!view.spec.is_elastic() || ready >= view.spec.workers) return "";
  const Block block = what_it_waits_for(view, ready);
  return view.blocked() ? fmt::format(" {} of {} workers run: {}: {}", ready, view.spec.workers,
                                      block.reason, block.message)
                        : " " + block.message;
}

void report_running(JobView& view, int ready) {
  const std::string reason = view.reason_of("Running");
  std::string message = fmt::format("{} is running.{}", view.title(), missing_workers(view, ready));
  if (!launcher_has_command(view.spec))
    message += " Its launcher has no command, so mpirun is not started again after a loss.";
  if (view.status.set_condition("Running", true, reason, message))
    view.event("Normal", reason, fmt::format("{} is running", view.title()));
  view.status.set_condition("Restarting", false, reason, message);
  view.status.set_condition("Pending", false, reason, message);
  view.status.erase("nextActionTime");
  view.status.set("state", "Running");
}

void report_waiting(JobView& view, int ready) {
  const Block block = what_it_waits_for(view, ready);
  if (view.status.set_condition("Pending", true, block.reason, block.message) &&
      block.reason != "WaitingForPods" && block.reason != "HeadAddressPending" &&
      block.reason != "BackOff")
    view.event("Warning", block.reason, block.message);
  // With too few workers the ranks of an elastic job wait; without their head they go on.
  const bool has_stopped = view.spec.is_elastic() && ready < view.spec.least_workers;
  if (has_stopped && view.status.is_true("Running"))
    view.status.set_condition("Running", false, block.reason, block.message);
  if (view.status.is_true("Restarting")) return view.status.set("state", "Restarting");
  // Workers that are added, or a launcher that its kubelet starts again, do not end Running.
  view.status.set("state", view.status.is_true("Running") ? "Running" : "Pending");
}

}  // namespace

void count_pods(JobView& view) {
  const int ready = static_cast<int>(ready_workers(view).size());
  view.status.set("desired", view.spec.workers);
  view.status.set("ready", ready);
  if (view.spec.is_mpi()) return count_replicas(view, ready);
  view.status.set("selector", fmt::format("{}={},{}={}", kUidLabel, view.spec.uid, kRoleLabel,
                                          name_of(Member::kWorker)));
}

void report(JobView& view) {
  count_pods(view);
  const int ready = static_cast<int>(ready_workers(view).size());
  const bool is_elastic = view.spec.is_elastic();
  if (is_elastic ? runs_elastic(view, ready) : !view.blocked() && runs(view, ready)) {
    report_running(view, ready);
  } else {
    report_waiting(view, ready);
  }
}

}  // namespace corro::kube
