#include "kube/reconcile/reconcile.h"

#include <algorithm>

#include <fmt/format.h>

#include "kube/reconcile/clean_up.h"
#include "kube/reconcile/gang_change.h"
#include "kube/reconcile/job_view.h"
#include "kube/reconcile/launcher_end.h"
#include "kube/reconcile/make_objects.h"
#include "kube/reconcile/members.h"
#include "kube/reconcile/progress.h"
#include "kube/reconcile/report.h"
#include "kube/reconcile/status_draft.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

/// True if corro wrote the status, although only its conditions are left. The API server drops the
/// other fields of our status when the MPI Operator's CustomResourceDefinition is installed. The
/// condition Pending tells the two apart: the MPI Operator does not know it.
bool is_from_us(const Json& job, KubeTime now) {
  return !StatusDraft(job, now).reason_of("Pending").empty();
}

/// Why nothing at all is done about the job; "" if it is ours.
std::string why_left_alone(const ReadJob& job, const Observed& observed, KubeTime now) {
  const JobSpec& spec = job.spec;
  if (spec.name.empty() || spec.uid.empty()) return "has no name or uid";
  if (spec.is_being_deleted) return "is being deleted";
  const bool by_default =
      spec.managed_by.empty() || (spec.is_mpi() && spec.managed_by == "kubeflow.org/mpi-operator");
  const bool takes_default = !spec.is_mpi() || !observed.options->only_managed;
  const bool is_ours =
      spec.managed_by == "training.corro.dev/operator" || (by_default && takes_default);
  if (!is_ours) return fmt::format("is managed by {}", spec.managed_by);
  const Json& status = object_in(*observed.job, "status");
  if (spec.is_mpi() && status.contains("conditions") && !status.contains("state") &&
      !is_from_us(*observed.job, now))
    return "was begun by another operator";
  return "";
}

void introduce(JobView& view) {
  view.status.set("observedGeneration", view.spec.generation);
  if (view.status.is_true("Created")) return;
  const std::string message = fmt::format("{} is created.", view.title());
  view.status.set("state", "Created");
  view.status.set("restarts", view.status.number("restarts"));  // kubectl shows 0, not nothing.
  view.status.set_condition("Created", true, view.reason_of("Created"), message);
  view.event("Normal", view.reason_of("Created"), message);
  for (const std::string& warning : view.job.warnings)
    view.event("Warning", "SetPodTemplateRestartPolicy", warning);
}

/// A manifest can be mended: the job waits for that, and nothing is made.
void report_problems(JobView& view) {
  introduce(view);
  std::string message;
  for (const Problem& problem : view.job.problems)
    message += fmt::format("{}{}: {}", message.empty() ? "" : "; ", problem.path, problem.what);
  view.block("ValidationError", message);
  if (view.status.set_condition("Pending", true, "ValidationError", message))
    view.event("Warning", "ValidationError", message);
  if (view.status.text("state") == "Created") view.status.set("state", "Pending");
}

/// The state is Suspended once all pods have been asked to end. Of what keeps them from that the
/// condition tells.
void report_suspension(JobView& view) {
  const auto& block = view.blocked();
  const std::string message = block ? fmt::format("{} is to be suspended, and its pods run: {}: {}",
                                                  view.title(), block->reason, block->message)
                                    : fmt::format("{} suspended", view.spec.kind_name());
  view.status.set_condition("Suspended", true, view.reason_of("Suspended"), message);
  const bool has_pods = std::any_of(view.pods.begin(), view.pods.end(),
                                    [&view](const PodView& pod) { return view.is_alive(pod); });
  if (!has_pods) view.status.set("state", "Suspended");
}

void suspend(JobView& view) {
  const std::string reason = view.reason_of("Suspended");
  if (!view.status.is_true("Suspended")) {
    const std::string told = fmt::format("{} suspended", view.spec.kind_name());
    view.status.set_condition("Suspended", true, reason, told);
    view.event("Normal", reason, told);
    if (!view.spec.is_mpi()) view.status.set("round", view.status.number("round") + 1);
    view.status.erase("ranInRound");
  }
  const std::string message = fmt::format("{} is suspended.", view.title());
  for (const char* type : {"Running", "Restarting", "Pending"})
    view.status.set_condition(type, false, reason, message);
  for (const char* field : {"startTime", "nextActionTime"}) view.status.erase(field);
  retire_all(view);
  suspend_launcher(view);
  remove_old_pods(view);
  remove_pod_groups(view);
  count_pods(view);
  report_progress(view);
  report_suspension(view);
}

void resume(JobView& view) {
  if (view.status.is_true("Suspended")) {
    const std::string message = fmt::format("{} resumed", view.spec.kind_name());
    view.status.set_condition("Suspended", false, view.reason_of("Resumed"), message);
    view.event("Normal", view.reason_of("Resumed"), message);
    view.status.erase("startTime");
  }
  if (!view.status.time("startTime")) view.status.set("startTime", time_text(view.now));
}

void check_deadline(JobView& view) {
  const auto start = view.status.time("startTime");
  if (!view.spec.active_deadline || !start) return;
  const KubeTime end = *start + *view.spec.active_deadline;
  if (view.now < end) return view.look_again(end);
  end_job(view, "Failed", "DeadlineExceeded",
          fmt::format("{} was active longer than specified deadline", view.spec.kind_name()));
}

void succeed(JobView& view, const std::string& more = "") {
  const std::string message =
      fmt::format("{} successfully completed.{}{}", view.title(), more.empty() ? "" : " ", more);
  end_job(view, "Succeeded", view.reason_of("Succeeded"), message);
}

/// The end of an MPIJob is its launcher's.
void end_with_launcher(JobView& view) {
  const LauncherEnd end = launcher_end(view);
  if (end.kind == LauncherEnd::Kind::kNone) return;
  if (end.at) view.status.set("completionTime", time_text(*end.at));
  if (end.kind == LauncherEnd::Kind::kSucceeded) {
    succeed(view, end.message);
  } else {
    end_job(view, "Failed", end.reason.empty() ? view.reason_of("Failed") : end.reason,
            end.message.empty() ? fmt::format("{} has failed", view.title()) : end.message);
  }
  count_pods(view);
}

/// Everything of a job that is neither finished nor suspended.
void run(JobView& view) {
  resume(view);
  check_deadline(view);
  // The ranks of an elastic job have ended when its head has.
  if (!view.status.is_finished() && view.spec.is_elastic() && ranks_are_done(view)) succeed(view);
  if (!view.status.is_finished()) settle_members(view);
  if (!view.status.is_finished() && ranks_are_done(view)) succeed(view);
  if (view.status.is_finished()) return;
  if (make_objects(view)) make_pods(view);
  remove_old_pods(view);
  remove_empty_groups(view);
  report_progress(view);
  report(view);
}

void advance(JobView& view) {
  introduce(view);
  if (view.spec.launcher) end_with_launcher(view);
  if (!view.status.is_finished() && view.spec.suspend) return suspend(view);
  if (!view.status.is_finished()) run(view);
  if (view.status.is_finished()) clean_up(view);
}

}  // namespace

Decision reconcile(const ReadJob& job, const Observed& observed, KubeTime now) {
  if (std::string why = why_left_alone(job, observed, now); !why.empty())
    return {.actions = {}, .reason = std::move(why), .look_again = {}};
  JobView view(job, observed, now);
  if (view.status.is_finished()) {
    clean_up(view);
  } else if (!job.problems.empty()) {
    report_problems(view);
  } else {
    advance(view);
  }
  return view.decide();
}

}  // namespace corro::kube
