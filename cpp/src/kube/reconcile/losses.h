// Losses: pods that ended before their time, and who comes in their place.
#pragma once

#include <optional>
#include <string>

#include "kube/reconcile/job_view.h"

namespace corro::kube {

struct Loss {
  Member member;
  int index;
  Cause cause;
  std::string pod;
  std::string why;
  std::optional<int> round;  ///< That its pod was made in; unknown if it vanished.
  bool lived_long = false;
  bool ends_round = false;  ///< As PodView has it.
};

/// Notes what is seen of a member, and returns its loss if there is one.
std::optional<Loss> look_at(JobView& view, Member member, int index);

/// Newest generation of which there is a pod; -1 if there is none.
[[nodiscard]] int newest_pod(const JobView& view, Member member, int index);

/// The member's next pod is another one, not before this time.
void next_generation(JobView& view, Member member, int index, std::optional<KubeTime> not_before,
                     int failures);
/// The same, unless the member has never had a pod of its generation.
void renew(JobView& view, Member member, int index);

void count_restart(JobView& view, Cause cause);

/// This member alone gets another pod, later each time. Returns that in words, for people.
std::string replace_member(JobView& view, const Loss& loss);

/// "at once", or "at" that time.
[[nodiscard]] std::string when(const std::optional<KubeTime>& time);

}  // namespace corro::kube
