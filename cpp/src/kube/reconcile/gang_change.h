// Kubernetes' own gang, of a job whose number of pods changes: who is in which PodGroup.
//
// An in-tree group's minCount cannot be changed, and a pod names its group for life. So a group has
// its count in its name, JOB-N, and another count is another group. The scheduler binds pods of a
// group once N of them are there, bound ones counted. A pod of the gang is
//
//   to be made
//   waiting    no node has been chosen for it
//   bound      on a node, in whichever group or in none. It is never disturbed
//
// The *wanted group* is that of the count which the job has now. It *can be filled* if N pods are
// in it, or can be: those that are bound in it, those that wait in any group, and those to be made.
//
//   it can be filled     pods are made in it. What waits in another group is made again
//   it cannot            too many run elsewhere: after a resize in the old group. Pods are made
//                        without a gang, and what waits in any group is made again
//
// A pod that is made again gets the next generation; that is no restart. It does not change whether
// the group can be filled, so nothing is made again twice for one change. A group that is not
// wanted goes once no pod names it.
//
// The template of MPIJob's launcher Job cannot be changed. Once its pod is seen waiting where it
// should not, the Job is deleted and made again; earlier, its pod may have ended well, unseen.
#pragma once

#include "kube/reconcile/job_view.h"

namespace corro::kube {

/// The gang of pods that are made now; none if they would wait for ever in it.
[[nodiscard]] GangChoice gang_to_join(const JobView& view);

/// A round of a job in a queue of Kueue is a group of its own: a group that lost some pods would
/// keep quota for others, and one that lost all of them has ended. So whoever was made in an
/// earlier round gets the next generation.
void leave_earlier_rounds(JobView& view);

/// Gives the next generation to members whose pods wait in a group where they should not.
void leave_other_groups(JobView& view);

/// True if the pod of this launcher Job waits in a group where it should not.
[[nodiscard]] bool launcher_waits_elsewhere(const JobView& view, const Json& job);

/// Deletes groups of other counts that no pod names.
void remove_empty_groups(JobView& view);

}  // namespace corro::kube
