#include "kube/reconcile/losses.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kube/reconcile/members.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

/// The workers of an elastic job that ends leave it, too, before its head has ended.
constexpr std::chrono::seconds kMayBeLast{5};

bool ran_long(const JobView& view) {
  const auto since = view.status.transition_of("Running");
  return view.status.is_true("Running") && since && view.now - *since >= kLivedLong;
}

std::optional<Loss> loss_of_vanished(const JobView& view, Member member, int index,
                                     const MemberState& state) {
  const std::string name = pod_name(view.spec, member, index, state.generation);
  if (!state.seen || state.done || view.is_expected("Pod", name)) return {};
  return Loss{member, index, Cause::kLostPod, name, "vanished", {}, ran_long(view)};
}

Loss loss_of_pod(const JobView& view, const PodView& pod) {
  const bool lived_long = pod.created && view.now - *pod.created >= kLivedLong;
  return {pod.member, pod.index, pod.cause,  pod.name,
          pod.why,    pod.round, lived_long, pod.ends_round};
}

}  // namespace

int newest_pod(const JobView& view, Member member, int index) {
  int newest = -1;
  for (const PodView& pod : view.pods) {
    if (pod.member == member && pod.index == index) newest = std::max(newest, pod.generation);
  }
  return newest;
}

std::optional<Loss> look_at(JobView& view, Member member, int index) {
  MemberState state = view.state(member, index);
  // Somebody took the status away: the pods still say how far it had come.
  if (newest_pod(view, member, index) > state.generation)
    state = {.generation = newest_pod(view, member, index)};
  const PodView* pod = view.find(member, index, state.generation);
  if (pod == nullptr) return loss_of_vanished(view, member, index, state);
  state.seen = true;
  const std::optional<KubeTime> left = std::exchange(state.not_before, std::nullopt);
  const bool is_elastic = view.spec.is_elastic();
  // A worker that is done stays done, even if what is left of its pod is evicted.
  const bool has_done = member == Member::kWorker && pod->phase == PodPhase::kSucceeded;
  if (has_done && !is_elastic) state.done = true;
  if (has_done && is_elastic) state.not_before = left.value_or(view.now + kMayBeLast);
  view.set_state(member, index, state);
  if (state.done) return {};
  if (pod->is_lost()) return loss_of_pod(view, *pod);
  if (pod->phase != PodPhase::kSucceeded || (member != Member::kHead && !is_elastic)) return {};
  if (state.not_before && view.now < *state.not_before) {
    view.look_again(*state.not_before);
    return {};
  }
  Loss loss = loss_of_pod(view, *pod);
  loss.cause = Cause::kLostPod;
  loss.why = member == Member::kHead ? "ended before the job" : "has left the job";
  return loss;
}

void next_generation(JobView& view, Member member, int index, std::optional<KubeTime> not_before,
                     int failures) {
  const MemberState state = view.state(member, index);
  const int newest = std::max(state.generation, newest_pod(view, member, index));
  view.set_state(member, index,
                 {.generation = newest + 1, .failures = failures, .not_before = not_before});
}

void renew(JobView& view, Member member, int index) {
  const MemberState state = view.state(member, index);
  if (state.seen || newest_pod(view, member, index) >= state.generation)
    next_generation(view, member, index, {}, 0);
}

void count_restart(JobView& view, Cause cause) {
  view.status.set("restarts", view.status.number("restarts") + 1);
  view.status.set_count("restartCounts", name_of(cause),
                        view.status.count("restartCounts", name_of(cause)) + 1);
  view.status.set("lastRestartTime", time_text(view.now));
}

std::string when(const std::optional<KubeTime>& time) {
  return time ? fmt::format("at {}", time_text(*time)) : std::string("at once");
}

std::string replace_member(JobView& view, const Loss& loss) {
  const int failures = loss.lived_long ? 0 : view.state(loss.member, loss.index).failures;
  std::optional<KubeTime> not_before;
  const auto wait = backoff_of(failures + 1, std::chrono::seconds(1), kMostBackoff);
  if (wait.count() > 0) not_before = view.now + wait;
  next_generation(view, loss.member, loss.index, not_before, failures + 1);
  count_restart(view, loss.cause);
  const int generation = view.state(loss.member, loss.index).generation;
  return fmt::format("{}: {}; {} replaces it {}", loss.pod, loss.why,
                     pod_name(view.spec, loss.member, loss.index, generation), when(not_before));
}

}  // namespace corro::kube
