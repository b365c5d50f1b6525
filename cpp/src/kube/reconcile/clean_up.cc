#include "kube/reconcile/clean_up.h"

#include "kube/reconcile/launcher_end.h"
#include "kube/reconcile/progress.h"
#include "kube/reconcile/report.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

bool is_kept_for_logs(const JobView& view, const PodView& pod, int generation) {
  if (view.spec.suspend || pod.phase != PodPhase::kFailed || pod.is_deleting) return false;
  return pod.cause != Cause::kLostPod && pod.generation == generation - 1;
}

bool is_launcher_jobs(const JobView& view, const PodView& pod) {
  return pod.member == Member::kLauncher && !view.spec.launcher_is_pod();
}

/// A pod that is stuck on a dead node is not waited for: once its replacement runs, its object
/// goes.
void force_stuck_pod(JobView& view, const PodView& pod) {
  const PodView* next = view.current(pod.member, pod.index);
  if (next == nullptr || !next->is_ready || !pod.deletion) return;
  const KubeTime end = *pod.deletion + kStuckAfter;
  if (view.now < end) return view.look_again(end);
  view.force_remove_pod(pod);
}

/// Containers that run on after corro's own would hold the pod's node for nothing, and a launcher's
/// Job would never count that it failed. One whose launcher succeeded would take a stopped pod for
/// a failure, and start the launcher again: such a pod stays, and goes with the job.
void stop_others(JobView& view, const PodView& pod) {
  if (!pod.has_ended() || pod.is_over) return;
  if (is_launcher_jobs(view, pod) && pod.phase == PodPhase::kSucceeded) return;
  view.stop_pod(pod);
}

/// What the ranks of a CorroJob have printed is in its head's log.
bool is_head_with_log(const JobView& view, const PodView& pod) {
  return pod.member == Member::kHead && !view.spec.is_mpi() && pod.phase != PodPhase::kPending;
}

bool is_wanted_after_end(const JobView& view, const PodView& pod) {
  // Agents of workers that go on hold their containers only with a head.
  const bool go_on = view.spec.is_mpi() && view.spec.clean_pods == CleanPods::kNone;
  if (pod.member == Member::kHead) return go_on || is_head_with_log(view, pod);
  if (!view.spec.is_mpi()) return pod.has_ended();
  if (pod.member == Member::kLauncher) return pod.has_ended();
  switch (view.spec.clean_pods) {
    case CleanPods::kNone:
      return true;
    case CleanPods::kRunning:
      return pod.is_over;
    case CleanPods::kAll:
      return false;
  }
  return true;
}

void check_time_to_live(JobView& view) {
  const auto completion = view.status.time("completionTime");
  if (!view.spec.time_to_live || !completion) return;
  const KubeTime end = *completion + *view.spec.time_to_live;
  if (view.now < end) return view.look_again(end);
  view.remove_object(*view.observed.job);
}

}  // namespace

void remove_old_pods(JobView& view) {
  for (const PodView& pod : view.pods) {
    const int generation = view.state(pod.member, pod.index).generation;
    const bool is_surplus = pod.member == Member::kWorker && pod.index >= view.spec.workers;
    const bool is_current = !is_surplus && pod.generation >= generation;
    const bool is_in_use = is_launcher_jobs(view, pod) || is_current;
    if (!is_in_use && pod.is_deleting) {
      force_stuck_pod(view, pod);
    } else if (!is_in_use && (is_surplus || !is_kept_for_logs(view, pod, generation))) {
      view.remove_pod(pod);
    } else {
      stop_others(view, pod);
    }
  }
}

void remove_pod_groups(JobView& view) {
  for (const Json* group : view.objects("PodGroup")) view.remove_object(*group);
}

void clean_up(JobView& view) {
  view.status.set("observedGeneration", view.spec.generation);
  for (const PodView& pod : view.pods) {
    if (is_launcher_jobs(view, pod)) continue;
    if (!is_wanted_after_end(view, pod)) {
      view.remove_pod(pod);
    } else if (is_head_with_log(view, pod)) {
      view.stop_pod(pod);
    } else {
      stop_others(view, pod);
    }
  }
  const Json* launcher = view.object("Job", launcher_host(view.spec));
  if (launcher != nullptr && launcher_end(view).kind == LauncherEnd::Kind::kNone)
    view.remove_object(*launcher);
  remove_pod_groups(view);
  count_pods(view);
  report_progress(view);
  check_time_to_live(view);
}

}  // namespace corro::kube
