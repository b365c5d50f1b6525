#include "kube/reconcile/launcher_end.h"

#include <fmt/format.h>

#include "kube/reconcile/gang_change.h"
#include "kube/reconcile/make_objects.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

constexpr size_t kMostMessage = 1024;

const Json* true_condition(const Json& job, std::string_view type) {
  const Json& status = object_in(job, "status");
  const auto conditions = status.find("conditions");
  if (conditions == status.end() || !conditions->is_array()) return nullptr;
  for (const Json& condition : *conditions) {
    if (text_in(condition, "type") == type && text_in(condition, "status") == "True")
      return &condition;
  }
  return nullptr;
}

/// The launcher's failed pod that was made last.
const PodView* last_failed(const JobView& view) {
  const PodView* last = nullptr;
  for (const PodView& pod : view.pods) {
    if (pod.member != Member::kLauncher || pod.phase != PodPhase::kFailed) continue;
    if (last == nullptr || last->created < pod.created) last = &pod;
  }
  return last;
}

LauncherEnd failure_of(const JobView& view, const Json& condition) {
  LauncherEnd end{.kind = LauncherEnd::Kind::kFailed,
                  .reason = text_in(condition, "reason"),
                  .message = text_in(condition, "message")};
  const PodView* pod = last_failed(view);
  if (end.reason != "BackoffLimitExceeded" || pod == nullptr) return end;
  end.reason += "/" + pod->status_reason;
  end.message += ": " + (pod->status_message.empty() ? pod->why : pod->status_message);
  if (end.message.size() > kMostMessage) end.message.resize(kMostMessage);
  return end;
}

LauncherEnd end_of_pod(const PodView* pod) {
  if (pod == nullptr) return {};
  if (pod->phase == PodPhase::kSucceeded) return {.kind = LauncherEnd::Kind::kSucceeded};
  if (pod->phase != PodPhase::kFailed || pod->cause == Cause::kLostPod) return {};
  return {.kind = LauncherEnd::Kind::kFailed,
          .reason = pod->status_reason,
          .message = fmt::format("{}: {}", pod->name, pod->why)};
}

/// The Job completes once all containers of its pod have: a container beside the launcher that runs
/// on keeps it from that.
LauncherEnd end_before_the_jobs(const JobView& view) {
  for (const PodView& pod : view.pods) {
    if (pod.member != Member::kLauncher || pod.phase != PodPhase::kSucceeded || pod.is_over)
      continue;
    if (pod.others_that_run.empty()) continue;
    return {.kind = LauncherEnd::Kind::kSucceeded,
            .message = fmt::format("{} goes on with {} until the job is deleted", pod.name,
                                   pod.others_that_run)};
  }
  return {};
}

}  // namespace

LauncherEnd launcher_end(const JobView& view) {
  if (view.spec.launcher_is_pod()) return end_of_pod(view.current(Member::kLauncher, 0));
  const Json* job = view.object("Job", launcher_host(view.spec));
  if (job == nullptr) return {};
  if (true_condition(*job, "Complete") != nullptr)
    return {.kind = LauncherEnd::Kind::kSucceeded,
            .at = time_in(object_in(*job, "status"), "completionTime")};
  const Json* failed = true_condition(*job, "Failed");
  return failed == nullptr ? end_before_the_jobs(view) : failure_of(view, *failed);
}

int running_launchers(const JobView& view) {
  int running = 0;
  for (const PodView& pod : view.pods) {
    if (pod.member == Member::kLauncher && pod.phase == PodPhase::kRunning && !pod.is_deleting)
      ++running;
  }
  return running;
}

void make_launcher(JobView& view, const PodContext& context, int ready_workers) {
  if (!view.spec.launcher) return;
  const std::string name = launcher_host(view.spec);
  const Json* job = view.object("Job", name);
  if (job != nullptr) {
    if (launcher_waits_elsewhere(view, *job)) return view.remove_object(*job);
    const bool is_suspended = object_in(*job, "spec").value("suspend", Json()) == Json(true);
    if (!is_suspended || object_in(*job, "metadata").contains("deletionTimestamp")) return;
    const Json wanted = launcher_job(context);
    const std::string hash = wanted["metadata"]["annotations"][std::string(kHashAnnotation)];
    const Json& annotations = object_in(object_in(*job, "metadata"), "annotations");
    // A template that no longer fits (Kueue chose other nodes) cannot be patched into an old Job.
    if (text_in(annotations, kHashAnnotation) != hash) return view.remove_object(*job);
    return view.patch(*job, Json::object({{"spec", Json::object({{"suspend", false}})}}));
  }
  if (view.spec.launcher_waits_for_workers && ready_workers < view.spec.workers) return;
  if (view.spec.launcher_is_pod()) return make_member(view, context, Member::kLauncher, 0);
  view.ensure({"Job", name}, [&context] { return launcher_job(context); });
}

void suspend_launcher(JobView& view) {
  const Json* job = view.object("Job", launcher_host(view.spec));
  if (job == nullptr) return;
  if (object_in(*job, "spec").value("suspend", Json()) == Json(true)) return;
  view.patch(*job, Json::object({{"spec", Json::object({{"suspend", true}})}}));
}

}  // namespace corro::kube
