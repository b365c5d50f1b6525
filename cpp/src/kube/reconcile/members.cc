#include "kube/reconcile/members.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kube/reconcile/gang_change.h"
#include "kube/reconcile/losses.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

void report_restart(JobView& view, Cause cause, const std::string& message) {
  const std::string reason = view.reason_of("Restarting");
  view.status.set_condition("Restarting", true, reason, message);
  view.status.set_condition("Running", false, reason, message);
  view.event("Warning", reason, fmt::format("{}: {}", name_of(cause), message));
}

/// A worker that ended well in a round that is over has to start again.
bool is_left_from_before(const JobView& view, int index) {
  if (view.status.flag("ranInRound")) return false;
  const PodView* pod = view.current(Member::kWorker, index);
  return pod != nullptr && view.state(Member::kWorker, index).done &&
         pod->round < view.status.number("round");
}

bool all_run(const JobView& view) {
  for (int i = 0; i < view.spec.workers; ++i) {
    const PodView* pod = view.current(Member::kWorker, i);
    if (view.state(Member::kWorker, i).done) continue;
    if (pod == nullptr || !pod->is_ready) return false;
  }
  return true;
}

/// True if all was lost with what began this round: it is counted already.
bool is_same_failure(const JobView& view, const std::vector<Loss>& losses) {
  if (view.status.flag("ranInRound")) return false;
  return std::all_of(losses.begin(), losses.end(), [&](const Loss& loss) {
    return loss.round && *loss.round < view.status.number("round");
  });
}

const Loss& blamed(const std::vector<Loss>& losses) {
  return *std::min_element(losses.begin(), losses.end(), [](const Loss& left, const Loss& right) {
    return left.cause < right.cause;
  });
}

/// Counts of failures in a row begin anew once the job ran well for long.
void reset_streaks(JobView& view) {
  const auto since = view.status.transition_of("Running");
  if (!view.status.is_true("Running") || !since) return;
  if (view.now - *since < view.spec.restart_reset) return;
  view.status.erase("streaks");
}

void begin_round(JobView& view) {
  view.status.set("round", view.status.number("round") + 1);
  view.status.set("ranInRound", false);
  view.status.erase("nextActionTime");
}

/// Counts a failure of a CorroJob. False if it was one too many.
bool count_failure(JobView& view, const Loss& loss) {
  reset_streaks(view);
  const RestartRule& rule = view.spec.restart.at(static_cast<size_t>(loss.cause));
  const std::string_view cause = name_of(loss.cause);
  const int64_t streak = view.status.count("streaks", cause) + 1;
  if (streak > rule.limit) {
    end_job(view, "Failed", "RestartLimitReached",
            fmt::format("{}: {}; restart.{}.limit is {}", loss.pod, loss.why, cause, rule.limit));
    return false;
  }
  view.status.set_count("streaks", cause, streak);
  count_restart(view, loss.cause);
  begin_round(view);
  // A pod that was lost is not the user's fault: the first one is replaced at once.
  const int64_t steps = loss.cause == Cause::kLostPod ? streak : streak + 1;
  const auto wait = backoff_of(steps, rule.backoff, rule.most_backoff);
  std::optional<KubeTime> next;
  if (wait.count() > 0) {
    next = view.now + wait;
    view.status.set("nextActionTime", time_text(*next));
  }
  report_restart(view, loss.cause,
                 fmt::format("{}: {}; restart {} of at most {} by {} begins {}", loss.pod, loss.why,
                             streak, rule.limit, cause, when(next)));
  return true;
}

/// CorroJob: the ranks start again, so whoever has no live pod gets a new one.
void restart_round(JobView& view, const std::vector<Loss>& losses) {
  if (!losses.empty() && !is_same_failure(view, losses) && !count_failure(view, blamed(losses)))
    return;
  std::optional<KubeTime> not_before = view.status.time("nextActionTime");
  if (not_before && *not_before <= view.now) not_before.reset();
  for (const Loss& loss : losses) next_generation(view, loss.member, loss.index, not_before, 0);
  for (int i = 0; i < view.spec.workers; ++i) {
    if (view.state(Member::kWorker, i).done)
      next_generation(view, Member::kWorker, i, not_before, 0);
  }
}

/// Workers beyond the wanted number: if they come back, it is with another generation.
void retire_surplus(JobView& view) {
  int last = static_cast<int>(view.status.number("desired")) - 1;
  for (const PodView& pod : view.pods) {
    if (pod.member == Member::kWorker) last = std::max(last, pod.index);
  }
  for (int i = view.spec.workers; i <= std::min(last, kMostWorkers); ++i) {
    renew(view, Member::kWorker, i);
  }
}

/// Another number of workers: a new round of a CorroJob, with a head that knows the number, unless
/// the job is elastic. An MPIJob's head has to know the keys alone, whose Secrets a pod's volume names.
void resize(JobView& view) {
  const int64_t before = view.status.number("desired");
  if (before == 0 || before == view.spec.workers || view.spec.is_elastic()) return;
  if (view.spec.is_mpi()) {
    if (secret_parts(static_cast<int>(before)) != secret_parts(view.spec.workers))
      renew(view, Member::kHead, 0);
    return;
  }
  begin_round(view);
  renew(view, Member::kHead, 0);
  view.status.set_condition(
      "Restarting", true, view.reason_of("Resized"),
      fmt::format("the ranks start again: {} workers, {} before", view.spec.workers, before));
  view.status.set_condition("Running", false, view.reason_of("Resized"), "the ranks start again");
}

void settle_corro_job(JobView& view, const std::vector<Loss>& losses) {
  if (all_run(view)) view.status.set("ranInRound", true);
  bool is_left = false;
  for (int i = 0; i < view.spec.workers; ++i) is_left = is_left || is_left_from_before(view, i);
  if (!losses.empty() || is_left) restart_round(view, losses);
}

/// The ranks have failed, or too few workers are left: all begin anew, with a new head.
void restart_elastic_job(JobView& view, const Loss& loss) {
  if (!count_failure(view, loss)) return;
  const std::optional<KubeTime> not_before = view.status.time("nextActionTime");
  next_generation(view, Member::kHead, 0, not_before, 0);
  for (int i = 0; i < view.spec.workers; ++i)
    next_generation(view, Member::kWorker, i, not_before, 0);
}

/// Whoever is lost is replaced, and the others go on; so do the ranks without their head. Whatever
/// ends a head that does not say that the ranks cannot go on, it is no failure of theirs.
void settle_elastic_job(JobView& view, std::vector<Loss> losses) {
  reset_streaks(view);
  for (const Loss& loss : losses)
    if (loss.ends_round) return restart_elastic_job(view, loss);
  for (Loss& loss : losses) {
    const bool is_usual = loss.cause == Cause::kLostPod;
    if (loss.member == Member::kHead) loss.cause = Cause::kLostPod;
    view.event(is_usual ? "Normal" : "Warning", view.reason_of("Replacing"),
               replace_member(view, loss) + "; the others go on");
  }
}

}  // namespace

std::chrono::seconds backoff_of(int64_t streak, std::chrono::seconds first,
                                std::chrono::seconds most) {
  if (streak <= 1) return std::chrono::seconds(0);
  std::chrono::seconds wait = first;
  for (int64_t i = 2; i < streak && wait < most; ++i) wait *= 2;
  return std::min(wait, most);
}

void settle_members(JobView& view) {
  resize(view);
  retire_surplus(view);
  std::vector<Loss> losses;
  const auto look = [&](Member member, int index) {
    if (auto loss = look_at(view, member, index)) losses.push_back(std::move(*loss));
  };
  look(Member::kHead, 0);
  if (view.spec.launcher_is_pod()) look(Member::kLauncher, 0);
  for (int i = 0; i < view.spec.workers; ++i) look(Member::kWorker, i);
  if (view.spec.is_mpi()) {
    for (const Loss& loss : losses) report_restart(view, loss.cause, replace_member(view, loss));
  } else if (view.spec.is_elastic()) {
    settle_elastic_job(view, std::move(losses));
  } else {
    settle_corro_job(view, losses);
  }
  if (view.status.is_finished()) return;
  leave_earlier_rounds(view);
  leave_other_groups(view);
}

void retire_all(JobView& view) {
  const auto retire = [&](Member member, int index) {
    const std::string name =
        pod_name(view.spec, member, index, view.state(member, index).generation);
    view.is_expected("Pod", name) ? next_generation(view, member, index, {}, 0)
                                  : renew(view, member, index);
  };
  retire(Member::kHead, 0);
  if (view.spec.launcher_is_pod()) retire(Member::kLauncher, 0);
  for (int i = 0; i < view.spec.workers; ++i) retire(Member::kWorker, i);
  retire_surplus(view);
}

bool ranks_are_done(const JobView& view) {
  if (view.spec.is_mpi()) return false;
  if (view.spec.is_elastic()) {
    const PodView* head = view.current(Member::kHead, 0);
    return head != nullptr && head->phase == PodPhase::kSucceeded;
  }
  for (int i = 0; i < view.spec.workers; ++i) {
    if (!view.state(Member::kWorker, i).done) return false;
  }
  return true;
}

void end_job(JobView& view, const std::string& how, const std::string& reason,
             const std::string& message) {
  view.status.set_condition(how, true, reason, message);
  for (const char* type : {"Running", "Restarting", "Pending"})
    view.status.set_condition(type, false, reason, message);
  if (!view.status.time("completionTime")) view.status.set("completionTime", time_text(view.now));
  view.status.erase("nextActionTime");
  view.status.set("state", how);
  view.event(how == "Failed" ? "Warning" : "Normal", reason, message);
}

}  // namespace corro::kube
