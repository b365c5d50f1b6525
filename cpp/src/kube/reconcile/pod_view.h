// PodView: of a pod, what decides about its job. Of the pod's JSON it reads metadata (name, uid,
// labels, annotations, ownerReferences, deletionTimestamp, creationTimestamp), spec's
// activeDeadlineSeconds, nodeName, restartPolicy, schedulingGates, schedulingGroup and corro's own
// container (own_container.h), and status; a cache may drop the rest.
#pragma once

#include <optional>
#include <string>

#include "kube/job/names.h"

namespace corro::kube {

enum class PodPhase : uint8_t { kPending, kRunning, kSucceeded, kFailed };

struct PodView {
  std::string name;
  std::string uid;
  std::string controller;  ///< Its uid: the job's, or the launcher Job's.
  std::string group;       ///< The in-tree PodGroup that it names, if any.
  std::string node;        ///< "" before it has one.
  Member member = Member::kWorker;
  int index = 0;
  int generation = 0;
  int round = 0;
  /// Once corro's own container has ended for good, as it ended; until then the pod's phase.
  PodPhase phase = PodPhase::kPending;
  bool is_over = false;  ///< All containers have ended.
  bool is_deleting = false;
  bool is_ready = false;
  bool is_stopped = false;          ///< By kStopSeconds: the kubelet ends it, its object stays.
  Cause cause = Cause::kUserError;  ///< If it failed or is being deleted.
  bool ends_round = false;          ///< A head that says that the ranks cannot go on.
  std::string why;                  ///< How it ended: "exit code 1", "Evicted: ...".
  std::string trouble;              ///< Why it does not run: "Unschedulable: 0/3 nodes ...".
  bool waits_for_volumes = false;   ///< Or for its network: its node has not begun with it.
  std::string preparation;          ///< What its node does before it starts; "" if that is over.
  std::string status_reason;        ///< The pod's own, as the kubelet wrote them, unless stopped.
  std::string status_message;
  std::string others_that_run;  ///< Names of containers that go on after corro's own.
  std::optional<KubeTime> created;
  std::optional<KubeTime> deletion;  ///< When its grace period ends.

  [[nodiscard]] bool is_bound() const { return !node.empty(); }
  [[nodiscard]] bool has_ended() const {
    return phase == PodPhase::kSucceeded || phase == PodPhase::kFailed;
  }
  /// Ended without success, or going to.
  [[nodiscard]] bool is_lost() const {
    return phase == PodPhase::kFailed || (is_deleting && phase != PodPhase::kSucceeded);
  }
};

/// activeDeadlineSeconds of a pod that is stopped.
inline constexpr int kStopSeconds = 1;

/// Nothing for a pod without our labels.
[[nodiscard]] std::optional<PodView> view_of(const Json& pod);

/// Uid of the object's controller; "" if it has none.
[[nodiscard]] std::string controller_of(const Json& object);
/// True if the object's controller has this uid.
[[nodiscard]] bool is_controlled_by(const Json& object, const std::string& uid);

/// The in-tree PodGroup that a pod's spec names; "" if it is in none.
[[nodiscard]] std::string group_named_in(const Json& pod_spec);

/// Text of a field of an object, "" if there is none.
[[nodiscard]] std::string text_in(const Json& object, std::string_view field);
/// An object's field that is an object itself; an empty one if there is none.
[[nodiscard]] const Json& object_in(const Json& object, std::string_view field);

}  // namespace corro::kube
