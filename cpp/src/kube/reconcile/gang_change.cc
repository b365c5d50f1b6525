#include "kube/reconcile/gang_change.h"

#include <algorithm>

#include <fmt/format.h>

#include "kube/reconcile/losses.h"

namespace corro::kube {
namespace {

bool waits_in_group(const PodView& pod) { return !pod.is_bound() && !pod.group.empty(); }

/// True if the wanted group has this pod, or one that is made in its place.
bool counts_for_group(const JobView& view, const PodView* pod) {
  return pod == nullptr || pod->group == view.gang.group || waits_in_group(*pod);
}

const PodView* pod_of_launcher_job(const JobView& view, const Json& job) {
  const std::string uid = text_in(object_in(job, "metadata"), "uid");
  const auto found = std::find_if(view.pods.begin(), view.pods.end(), [&](const PodView& pod) {
    return pod.controller == uid && view.is_alive(pod);
  });
  return found == view.pods.end() ? nullptr : &*found;
}

bool launcher_counts(const JobView& view) {
  if (!view.spec.launcher || view.spec.launcher_waits_for_workers) return false;
  if (view.spec.launcher_is_pod())
    return counts_for_group(view, view.current(Member::kLauncher, 0));
  const Json* job = view.object("Job", launcher_host(view.spec));
  if (job == nullptr) return true;
  const Json& fields = object_in(*job, "spec");
  if (const PodView* pod = pod_of_launcher_job(view, *job)) return counts_for_group(view, pod);
  // A suspended Job of another template is made again when it goes on.
  const bool is_suspended = fields.value("suspend", Json()) == Json(true);
  const Json& pod_spec = object_in(object_in(fields, "template"), "spec");
  return is_suspended || !group_named_in(pod_spec).empty();
}

bool can_be_filled(const JobView& view) {
  int pods = launcher_counts(view) ? 1 : 0;
  for (int i = 0; i < view.spec.workers; ++i) {
    const bool is_done = view.state(Member::kWorker, i).done;
    if (!is_done && counts_for_group(view, view.current(Member::kWorker, i))) ++pods;
  }
  return pods >= gang_size(view.spec);
}

}  // namespace

GangChoice gang_to_join(const JobView& view) {
  const bool is_native = view.gang.gang == Gang::kNative;
  return is_native && !can_be_filled(view) ? GangChoice() : view.gang;
}

void leave_earlier_rounds(JobView& view) {
  if (!starts_by_kueue(view.spec, view.gang)) return;
  std::optional<KubeTime> not_before = view.status.time("nextActionTime");
  if (not_before && *not_before <= view.now) not_before.reset();
  for (int i = 0; i < view.spec.workers; ++i) {
    const PodView* pod = view.current(Member::kWorker, i);
    if (pod != nullptr && pod->round < view.status.number("round"))
      next_generation(view, Member::kWorker, i, not_before, 0);
  }
}

void leave_other_groups(JobView& view) {
  if (view.gang.gang != Gang::kNative) return;
  const std::string wanted = gang_to_join(view).group;
  int left = 0;
  const auto leave = [&](Member member, int index) {
    const PodView* pod = view.current(member, index);
    if (pod == nullptr || !view.is_alive(*pod)) return;
    if (!waits_in_group(*pod) || pod->group == wanted) return;
    MemberState next = view.state(member, index);
    ++next.generation;
    next.seen = false;
    view.set_state(member, index, next);
    ++left;
  };
  for (int i = 0; i < view.spec.workers; ++i) leave(Member::kWorker, i);
  if (view.spec.launcher_is_pod()) leave(Member::kLauncher, 0);
  if (left == 0) return;
  view.event("Normal", view.reason_of("GangChanged"),
             fmt::format("{} pods waited in a PodGroup of another size and are made again", left));
}

bool launcher_waits_elsewhere(const JobView& view, const Json& job) {
  if (view.gang.gang != Gang::kNative) return false;
  const PodView* pod = pod_of_launcher_job(view, job);
  return pod != nullptr && waits_in_group(*pod) && pod->group != gang_to_join(view).group;
}

void remove_empty_groups(JobView& view) {
  if (view.gang.gang != Gang::kNative) return;
  for (const Json* group : view.objects("PodGroup")) {
    const std::string name = text_in(object_in(*group, "metadata"), "name");
    const bool is_named = std::any_of(view.pods.begin(), view.pods.end(), [&](const PodView& pod) {
      return pod.group == name && !pod.has_ended();
    });
    if (name != view.gang.group && !is_named) view.remove_object(*group);
  }
}

}  // namespace corro::kube
