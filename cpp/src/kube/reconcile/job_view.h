// JobView: one job while a decision is made: what is observed of it, classified, the status it will
// have, and the actions so far. The steps of reconcile.cc read and write it. Pods and objects are
// the job's own; of a name that was made again nothing is shown until a watch tells of the new one.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/job/read_job.h"
#include "kube/reconcile/action.h"
#include "kube/reconcile/pod_group.h"
#include "kube/reconcile/pod_objects.h"
#include "kube/reconcile/pod_view.h"
#include "kube/reconcile/status_draft.h"

namespace corro::kube {

/// What keeps the job from running, in a condition's words.
struct Block {
  std::string reason;
  std::string message;
};

/// Loop-confined. Borrows job and observed.
class JobView {
 public:
  JobView(const ReadJob& job, const Observed& observed, KubeTime now);

  const JobSpec& spec;
  const ReadJob& job;
  const Observed& observed;
  const Options& options;
  const KubeTime now;
  const GangChoice gang;
  StatusDraft status;
  std::vector<PodView>
      pods;  ///< The job's own, the launcher Job's too; by member, index, generation.

  [[nodiscard]] const PodView* find(Member member, int index, int generation) const;
  /// The pod of the member's current generation; null if there is none.
  [[nodiscard]] const PodView* current(Member member, int index) const;
  /// Neither ended nor asked to end.
  [[nodiscard]] bool is_alive(const PodView& pod) const;
  /// An object of the job's own; null if there is none.
  [[nodiscard]] const Json* object(std::string_view kind, const std::string& name) const;
  /// All of the job's own of one kind.
  [[nodiscard]] std::vector<const Json*> objects(std::string_view kind) const;
  [[nodiscard]] bool is_expected(std::string_view kind, const std::string& name) const;
  [[nodiscard]] MemberState state(Member member, int index) const;
  void set_state(Member member, int index, const MemberState& state);

  /// Creates the object unless it is there or on its way. False if it cannot be: then the job is
  /// blocked.
  bool ensure(const ObjectName& name, const std::function<Json()>& make, Fill fill = Fill::kNothing,
              std::vector<std::string> members = {});
  void patch(const Json& object, Json change);
  void remove_object(const Json& object);
  void remove_pod(const PodView& pod);
  /// Takes away the object of a pod that does not end, without a word from its node.
  void force_remove_pod(const PodView& pod);
  /// Ends a pod that runs, and keeps its object, whose log can be read then.
  void stop_pod(const PodView& pod);
  void event(std::string_view type, std::string_view reason, std::string_view message);
  void look_again(KubeTime at);
  /// The first one is what the condition says.
  void block(std::string reason, std::string message);
  [[nodiscard]] const std::optional<Block>& blocked() const { return blocked_; }

  /// "MPIJob" + "Running" = "MPIJobRunning".
  [[nodiscard]] std::string reason_of(std::string_view what) const;
  /// "MPIJob default/mnist".
  [[nodiscard]] std::string title() const;

  /// The actions in their order, the status first.
  [[nodiscard]] Decision decide();

 private:
  [[nodiscard]] bool is_foreign(const ObjectName& name) const;
  bool is_refused(const ObjectName& name, const char* what = "CreateRefused");
  void patch(std::string api_version, const ObjectName& name, Json change);

  std::vector<Action> writes_;
  std::vector<Action> deletes_;
  std::vector<Action> events_;
  std::optional<Block> blocked_;
  std::optional<KubeTime> look_again_;
};

/// A refused create or delete is tried again so long after.
inline constexpr std::chrono::seconds kRetryRefused{10};
/// An object that is wrong, unless the job's manifest changes before: a webhook that does not like
/// it may change, too.
inline constexpr std::chrono::seconds kRetryWrong{300};
/// Counts and words of a status are written at most so often.
inline constexpr std::chrono::seconds kMinorStatusEvery{1};

}  // namespace corro::kube
