// ClusterModel: an API server with its controllers, and an operator that runs reconcile() against
// it, in memory, for tests. What goes wrong in a real one can be made to go wrong here, at any
// step:
//
//   watches     each kind has its own queue of events: the operator's view of one may be far behind
//   answers     an action is refused, or done and its answer lost
//   the operator is killed between any two actions: expectations go, and it lists everything anew;
//               else it looks up what got no answer, before it decides again
//   pods        are killed, evicted, deleted, before or after they were seen
//
// Owned objects go with their owner, launcher Jobs make pods, Services get addresses. The scheduler
// binds a pod while there is room; one that names an in-tree PodGroup, once minCount pods of that
// group are there and have room. The model itself checks what must hold at every write (see
// `violations`).
#pragma once

#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kube/reconcile/reconcile.h"

namespace corro::kube {

class ClusterModel {
 public:
  struct Faults {
    double crash = 0;
    double lost_answer = 0;
    double refused = 0;
  };

  ClusterModel(Json job, uint64_t seed, Options options = {});

  // What the operator does.
  /// Decides once on what the operator sees now, and performs the actions. Returns how many it
  /// tried.
  size_t reconcile_once(const Faults& faults);
  /// Delivers one event of a random watch. False if there is none.
  bool deliver_one();
  void deliver_all();
  void restart_operator();
  /// Another operator takes over, whose pods get their agents from this image.
  void upgrade_operator(const std::string& agent_image);

  // What the cluster does.
  /// One step of a random controller: a pod starts, a deleted pod goes, a launcher Job makes its
  /// pod. False if there is nothing to do.
  bool run_controllers_once();
  void pass(std::chrono::seconds time) { now_ += time; }
  /// How many pods fit on the nodes.
  int room = 1000;
  /// The operator's role allows it to.
  bool may_delete_pods = true;

  // What users and faults do.
  enum class Harm { kExitCode, kOutOfMemory, kEvict, kDelete, kVanish };
  /// Harms a random live pod of the job. False if there is none.
  bool harm_random_pod(Harm harm);
  bool harm_pod(const std::string& name, Harm harm);
  /// A pod that is there ends with 0.
  void end_well(const std::string& pod);
  /// One container of a pod ends, as its kubelet says; the pod runs while another one does.
  void end_container(const std::string& pod, const std::string& container, const Json& terminated);
  void change_spec(const Json& merge_patch);
  void delete_job();
  /// All running worker pods of a CorroJob, the head of an elastic one, or the launcher Job, end with
  /// success; of pods with other containers, corro's own alone.
  void finish_ranks();
  void fail_launcher(const std::string& reason);
  void put(Json object);

  /// Runs without faults until nothing changes any more, letting time pass where the operator
  /// waits. False if that does not end.
  bool settle();

  [[nodiscard]] const Json* get(const std::string& kind, const std::string& name) const;
  [[nodiscard]] std::vector<const Json*> list(const std::string& kind) const;
  [[nodiscard]] const Json& job() const { return store_.at(job_name_); }
  [[nodiscard]] bool has_job() const { return store_.contains(job_name_); }
  [[nodiscard]] size_t size() const { return store_.size(); }
  [[nodiscard]] std::string state() const;
  [[nodiscard]] bool is_true(const std::string& condition) const;
  /// Names of pods that are neither ended nor being deleted.
  [[nodiscard]] std::set<std::string> live_pods() const;
  [[nodiscard]] const Decision& last() const { return last_; }
  [[nodiscard]] KubeTime now() const { return now_; }

  /// What must never happen and did.
  std::vector<std::string> violations;
  std::vector<std::string> events;     ///< "Normal MPIJobCreated".
  std::map<std::string, int> creates;  ///< Successful ones, by "Kind/name".
  std::map<std::string, Json> bodies;  ///< The same, as they were made.
  std::map<std::string, int> harms;    ///< By member's key.
  std::map<ActionKind, int> performed;
  std::set<std::string> fills;  ///< Names of Secrets that the caller had to fill.

 private:
  enum class Answer { kDone, kConflict, kExists, kNotFound };
  struct Event {
    ObjectName name;
    Json object;
    bool is_gone = false;
  };

  Answer perform(const Action& action);
  Answer create(const Action& action);
  void check_create(const Json& object);
  [[nodiscard]] std::string pod_of_another_image(const Json& made) const;
  Answer remove(const ObjectName& name, const Json& body);
  [[nodiscard]] std::string known_uid(const ObjectName& name) const;
  bool look_up_unanswered(const Faults& faults);
  void note(const Action& action, Answer answer);
  void see(const ObjectName& name, Json object);
  [[nodiscard]] bool is_old_job(const Event& event) const;
  void write(const ObjectName& name, Json object);
  void erase(const ObjectName& name);
  void start_pod(const ObjectName& name);
  [[nodiscard]] bool can_bind(const Json& pod) const;
  [[nodiscard]] bool is_orphan(const Json& pod) const;
  bool run_pod(const ObjectName& name);
  bool run_job_controller(const ObjectName& name);
  bool chance(double probability);
  [[nodiscard]] Observed observe() const;

  std::map<ObjectName, Json> store_;
  std::map<std::string, std::deque<Event>> watches_;
  std::map<ObjectName, Json> view_;
  Expectations expected_;
  std::set<ObjectName> foreign_;
  std::map<ObjectName, Refusal> refused_;
  ObjectName job_name_;
  Options options_;
  std::mt19937_64 random_;
  KubeTime now_;
  uint64_t version_ = 0;
  std::set<std::string> unseen_when_gone_;
  Decision last_;
};

}  // namespace corro::kube
