// Members: which of a job's pods were lost, and which generation of each is the current one from
// now on.
//
// A member (the head, worker 3, v1's launcher) has one current generation, in the status. Its pod
// may be
//
//   not there, not seen    still to be made; perhaps made, and the answer was lost
//   there                  noted as seen
//   ended well             done: a worker of a CorroJob has nothing more to do in this round
//   ended otherwise        lost: the member gets the next generation
//   being deleted          lost, too
//   seen, not there now    lost, too
//
// The new generation is written before its pod is made, together with the count of the loss. So a
// loss is counted once however often the operator is stopped on the way, and no generation has two
// pods.
//
// MPIJob replaces the lost member alone, and so does an elastic CorroJob, whose ranks go on until its
// head ends by itself. The ranks of other CorroJobs all start again, in a new *round*: what is lost
// before all ran in it, of pods that are older than the round, is part of the same failure.
#pragma once

#include "kube/reconcile/job_view.h"

namespace corro::kube {

/// A replacement is made at once after a pod that lived so long; else it backs off.
inline constexpr std::chrono::seconds kLivedLong{60};
inline constexpr std::chrono::seconds kMostBackoff{300};

/// Finds losses, counts them and gives out new generations. May end the job.
void settle_members(JobView& view);

/// Gives a new generation to all members that have a pod, or had: when the job is suspended.
void retire_all(JobView& view);

/// True if every worker of a CorroJob ended well, or the head of an elastic one.
[[nodiscard]] bool ranks_are_done(const JobView& view);

/// Sets conditions, completionTime and state of a job that ended; `how`: "Succeeded" or "Failed".
void end_job(JobView& view, const std::string& how, const std::string& reason,
             const std::string& message);

/// KubeTime to wait before restart number `streak` in a row: none, `first`, twice that, ... `most`.
[[nodiscard]] std::chrono::seconds backoff_of(int64_t streak, std::chrono::seconds first,
                                              std::chrono::seconds most);

}  // namespace corro::kube
