#include "kube/reconcile/members.h"

#include <algorithm>

#include <fmt/format.h>

#include "kube/reconcile/gang_change.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

struct Loss {
  Member member;
  int index;
  Cause cause;
  std::string pod;
  std::string why;
  std::optional<int> round;  ///< That its pod was made in; unknown if it vanished.
  bool lived_long = false;
};

bool ran_long(const JobView& view) {
  const auto since = view.status.transition_of("Running");
  return view.status.is_true("Running") && since && view.now - *since >= kLivedLong;
}

/// Newest generation of which there is a pod; -1 if there is none.
int newest_pod(const JobView& view, Member member, int index) {
  int newest = -1;
  for (const PodView& pod : view.pods) {
    if (pod.member == member && pod.index == index) newest = std::max(newest, pod.generation);
  }
  return newest;
}

std::optional<Loss> loss_of_vanished(const JobView& view, Member member, int index,
                                     const MemberState& state) {
  const std::string name = pod_name(view.spec, member, index, state.generation);
  if (!state.seen || state.done || view.is_expected("Pod", name)) return {};
  return Loss{member, index, Cause::kLostPod, name, "vanished", {}, ran_long(view)};
}

Loss loss_of_pod(const JobView& view, const PodView& pod) {
  const bool lived_long = pod.created && view.now - *pod.created >= kLivedLong;
  return {pod.member, pod.index, pod.cause, pod.name, pod.why, pod.round, lived_long};
}

/// Notes what is seen of a member, and returns its loss if there is one.
std::optional<Loss> look_at(JobView& view, Member member, int index) {
  MemberState state = view.state(member, index);
  // Somebody took the status away: the pods still say how far it had come.
  if (newest_pod(view, member, index) > state.generation)
    state = {.generation = newest_pod(view, member, index)};
  const PodView* pod = view.find(member, index, state.generation);
  if (pod == nullptr) return loss_of_vanished(view, member, index, state);
  state.seen = true;
  state.not_before.reset();
  // A worker that is done stays done, even if what is left of its pod is evicted.
  if (member == Member::kWorker && pod->phase == PodPhase::kSucceeded) state.done = true;
  view.set_state(member, index, state);
  if (state.done) return {};
  if (pod->is_lost()) return loss_of_pod(view, *pod);
  if (member != Member::kHead || pod->phase != PodPhase::kSucceeded) return {};
  Loss loss = loss_of_pod(view, *pod);
  loss.cause = Cause::kLostPod;
  loss.why = "ended before the job";
  return loss;
}

void next_generation(JobView& view, Member member, int index, std::optional<KubeTime> not_before,
                     int failures) {
  const MemberState state = view.state(member, index);
  const int newest = std::max(state.generation, newest_pod(view, member, index));
  view.set_state(member, index,
                 {.generation = newest + 1, .failures = failures, .not_before = not_before});
}

void count_restart(JobView& view, Cause cause) {
  view.status.set("restarts", view.status.number("restarts") + 1);
  view.status.set_count("restartCounts", name_of(cause),
                        view.status.count("restartCounts", name_of(cause)) + 1);
  view.status.set("lastRestartTime", time_text(view.now));
}

void report_restart(JobView& view, Cause cause, const std::string& message) {
  const std::string reason = view.reason_of("Restarting");
  view.status.set_condition("Restarting", true, reason, message);
  view.status.set_condition("Running", false, reason, message);
  view.event("Warning", reason, fmt::format("{}: {}", name_of(cause), message));
}

std::string when(const std::optional<KubeTime>& time) {
  return time ? fmt::format("at {}", time_text(*time)) : std::string("at once");
}

/// MPIJob: this member alone.
void replace_member(JobView& view, const Loss& loss) {
  const int failures = loss.lived_long ? 0 : view.state(loss.member, loss.index).failures;
  std::optional<KubeTime> not_before;
  const auto wait = backoff_of(failures + 1, std::chrono::seconds(1), kMostBackoff);
  if (wait.count() > 0) not_before = view.now + wait;
  next_generation(view, loss.member, loss.index, not_before, failures + 1);
  count_restart(view, loss.cause);
  const int generation = view.state(loss.member, loss.index).generation;
  report_restart(
      view, loss.cause,
      fmt::format("{}: {}; {} replaces it {}", loss.pod, loss.why,
                  pod_name(view.spec, loss.member, loss.index, generation), when(not_before)));
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
    const MemberState state = view.state(Member::kWorker, i);
    if (state.seen || newest_pod(view, Member::kWorker, i) >= state.generation)
      next_generation(view, Member::kWorker, i, {}, 0);
  }
}

void replace_head(JobView& view) {
  const MemberState head = view.state(Member::kHead, 0);
  if (head.seen || newest_pod(view, Member::kHead, 0) >= head.generation)
    next_generation(view, Member::kHead, 0, {}, 0);
}

/// Another number of workers: a new round of a CorroJob, with a head that knows the number. An
/// MPIJob's head has to know the keys alone, whose Secrets a pod's volume names.
void resize(JobView& view) {
  const int64_t before = view.status.number("desired");
  if (before == 0 || before == view.spec.workers) return;
  if (view.spec.is_mpi()) {
    if (secret_parts(static_cast<int>(before)) != secret_parts(view.spec.workers))
      replace_head(view);
    return;
  }
  begin_round(view);
  replace_head(view);
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
    for (const Loss& loss : losses) replace_member(view, loss);
  } else {
    settle_corro_job(view, losses);
  }
  if (!view.status.is_finished()) leave_other_groups(view);
}

void retire_all(JobView& view) {
  const auto retire = [&](Member member, int index) {
    const MemberState state = view.state(member, index);
    const std::string name = pod_name(view.spec, member, index, state.generation);
    if (state.seen || view.is_expected("Pod", name) ||
        newest_pod(view, member, index) >= state.generation)
      next_generation(view, member, index, {}, 0);
  };
  retire(Member::kHead, 0);
  if (view.spec.launcher_is_pod()) retire(Member::kLauncher, 0);
  for (int i = 0; i < view.spec.workers; ++i) retire(Member::kWorker, i);
  retire_surplus(view);
}

bool all_workers_done(const JobView& view) {
  if (view.spec.is_mpi()) return false;
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
