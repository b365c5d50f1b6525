#include "kube/reconcile/cluster_model.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "kube/reconcile/injection.h"
#include "kube/reconcile/pod_view.h"
#include "kube/reconcile/status_draft.h"
#include "kube/reconcile/time_text.h"
#include "kube/reconcile/trimmed.h"

namespace corro::kube {
namespace {

/// The operator writes some kinds, and may not read them.
bool is_watched(std::string_view kind) {
  constexpr std::array<std::string_view, 5> kWritten = {"Secret", "ServiceAccount", "Role",
                                                        "RoleBinding", "Lease"};
  return std::ranges::find(kWritten, kind) == kWritten.end();
}

/// Whose end with success is that of the job's ranks.
Member ends_with(const Json& job) {
  if (job["kind"] == "MPIJob") return Member::kLauncher;
  return job["spec"]["worker"].contains("min") ? Member::kHead : Member::kWorker;
}

ObjectName name_of_object(const Json& object) {
  return {text_in(object, "kind"), text_in(object_in(object, "metadata"), "name")};
}

/// Of a head its own image, of other pods that of the init container that brings the agent.
std::string agent_image_of(const Json& pod) {
  const Json& spec = object_in(pod, "spec");
  for (const char* list : {"initContainers", "containers"})
    for (const Json& container : spec.value(list, Json::array()))
      if (text_in(container, "name") == "corro-agent" || text_in(container, "name") == "head")
        return text_in(container, "image");
  return "";
}

std::string uid_of(const Json& object) { return text_in(object_in(object, "metadata"), "uid"); }

bool has_ended(const Json& pod) {
  const std::string phase = text_in(object_in(pod, "status"), "phase");
  return phase == "Succeeded" || phase == "Failed";
}

bool is_deleting(const Json& object) {
  return object_in(object, "metadata").contains("deletionTimestamp");
}

bool is_live(const Json& pod) { return !has_ended(pod) && !is_deleting(pod); }

/// As the kubelet does once a pod's deadline is over.
void end_late(Json& pod) {
  if (!pod["spec"].contains("activeDeadlineSeconds") || !is_live(pod)) return;
  pod["status"]["phase"] = "Failed";
  pod["status"]["reason"] = "DeadlineExceeded";
  pod["status"]["message"] = "Pod was active on the node longer than the specified deadline";
}

int64_t version_of(const Json& object) {
  return std::stoll(object["metadata"]["resourceVersion"].get<std::string>());
}

std::string group_of(const Json& pod) { return group_named_in(object_in(pod, "spec")); }

bool is_bound(const Json& pod) { return object_in(pod, "spec").contains("nodeName"); }

const Json& containers_of(const Json& pod) { return pod["spec"]["containers"]; }

/// That of the samples, wherever a webhook has moved it.
std::string own_name(const Json& pod) {
  const std::string first = containers_of(pod)[0]["name"];
  return containers_of(pod).size() == 1 ? first : "main";
}

std::string key_of(const PodView& view) { return member_key(view.member, view.index); }

}  // namespace

ClusterModel::ClusterModel(Json job, uint64_t seed, Options options)
    : job_name_(name_of_object(job)),
      options_(std::move(options)),
      random_(seed),
      now_(std::chrono::sys_days(std::chrono::year(2026) / 11 / 24)) {
  job["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555";
  job["metadata"]["namespace"] = "default";
  job["metadata"]["generation"] = 1;
  write(job_name_, std::move(job));
}

bool ClusterModel::chance(double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

void ClusterModel::write(const ObjectName& name, Json object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  store_[name] = object;
  if (is_watched(name.kind)) watches_[name.kind].push_back({name, std::move(object)});
}

void ClusterModel::erase(const ObjectName& name) {
  if (const auto pod = store_.find(name); pod != store_.end() && name.kind == "Pod") {
    const auto view = view_of(pod->second);
    const bool is_seen = view && has_job() && StatusDraft(job(), now_).member(key_of(*view)).seen;
    if (!is_seen) unseen_when_gone_.insert(name.name);
  }
  const auto found = store_.find(name);
  if (found == store_.end()) return;
  if (is_watched(name.kind)) watches_[name.kind].push_back({name, found->second, true});
  store_.erase(found);
}

void ClusterModel::put(Json object) {
  const ObjectName name = name_of_object(object);
  write(name, std::move(object));
}

bool ClusterModel::deliver_one() {
  std::vector<std::string> kinds;
  for (const auto& [kind, queue] : watches_) {
    if (!queue.empty()) kinds.push_back(kind);
  }
  if (kinds.empty()) return false;
  auto& queue = watches_[kinds[random_() % kinds.size()]];
  Event event = std::move(queue.front());
  queue.pop_front();
  const std::string uid = uid_of(event.object);
  if (event.is_gone) {
    expected_.deleted.erase(known_uid(event.name));
    expected_.tell(event.name, uid);
    view_.erase(event.name);
  } else if (!is_old_job(event)) {
    expected_.tell(event.name, uid);
    see(event.name, std::move(event.object));
  }
  return true;
}

/// The operator had a later version of the job from the answer to a status patch, and keeps it.
bool ClusterModel::is_old_job(const Event& event) const {
  const auto known = view_.find(event.name);
  return event.name == job_name_ && known != view_.end() &&
         version_of(event.object) < version_of(known->second);
}

/// The operator's cache keeps no more than it has to.
void ClusterModel::see(const ObjectName& name, Json object) {
  trim(object);
  view_[name] = std::move(object);
}

void ClusterModel::deliver_all() {
  while (deliver_one()) {
  }
}

void ClusterModel::restart_operator() {
  expected_ = {};
  foreign_ = {};
  refused_ = {};
  view_.clear();
  watches_.clear();
  for (const auto& [name, object] : store_) {
    if (is_watched(name.kind)) see(name, object);
  }
}

void ClusterModel::upgrade_operator(const std::string& agent_image) {
  options_.agent_image = agent_image;
  restart_operator();
}

Observed ClusterModel::observe() const {
  Observed observed;
  observed.expected = expected_;
  observed.foreign = foreign_;
  observed.refused = refused_;
  observed.options = &options_;
  for (const auto& [name, object] : view_) {
    if (name == job_name_) {
      observed.job = &object;
    } else if (name.kind == "Pod") {
      observed.pods.push_back(&object);
    } else {
      observed.objects.push_back(&object);
    }
  }
  return observed;
}

std::string ClusterModel::known_uid(const ObjectName& name) const {
  const auto known = view_.find(name);
  return known == view_.end() ? std::string() : uid_of(known->second);
}

/// False if there is no answer yet.
bool ClusterModel::look_up_unanswered(const Faults& faults) {
  if (!expected_.asked()) return true;
  if (chance(faults.refused)) return false;
  const auto found = store_.find(expected_.asked()->object);
  if (found == store_.end() || !is_watched(found->first.kind)) {
    expected_.drop_asked();
  } else {
    expected_.answer(uid_of(found->second));
  }
  return true;
}

size_t ClusterModel::reconcile_once(const Faults& faults) {
  if (!look_up_unanswered(faults)) return 0;
  const Observed observed = observe();
  if (observed.job == nullptr) return 0;
  const ReadJob read = read_job(*observed.job, {});
  last_ = reconcile(read, observed, now_);
  size_t tried = 0;
  for (const Action& action : last_.actions) {
    if (chance(faults.crash)) {
      restart_operator();
      return tried;
    }
    if (action.kind != ActionKind::kEvent) ++tried;
    if (chance(faults.refused)) return tried;
    if (action.kind == ActionKind::kDelete && action.object.kind == "Pod" && !may_delete_pods) {
      refused_[action.object] = {R"(403 Forbidden: cannot delete resource "pods")", now_};
      return tried;
    }
    if (action.kind == ActionKind::kCreate)
      expected_.ask(action.api_version, action.object, known_uid(action.object));
    const Answer answer = perform(action);
    ++performed[action.kind];
    const bool is_lost = chance(faults.lost_answer);
    // After a status patch the operator takes the job anew, whatever came of it.
    if (action.kind == ActionKind::kStatus && has_job()) {
      see(job_name_, job());
      expected_.status_written = now_;
    }
    if (is_lost) return tried;
    note(action, answer);
    const bool is_gone = action.kind == ActionKind::kDelete && answer == Answer::kNotFound;
    const bool is_there = action.kind == ActionKind::kCreate && answer == Answer::kExists;
    if (answer != Answer::kDone && !is_gone && !is_there) return tried;
  }
  return tried;
}

void ClusterModel::note(const Action& action, Answer answer) {
  if (action.kind == ActionKind::kDelete && answer == Answer::kDone)
    expected_.deleted.insert(action.body["preconditions"]["uid"].get<std::string>());
  if (action.kind != ActionKind::kCreate) return;
  const Json& there = store_.at(action.object);
  if (is_watched(action.object.kind) && !is_controlled_by(there, uid_of(job()))) {
    foreign_.insert(action.object);
    expected_.drop_asked();
  } else {
    expected_.answer(uid_of(there));
  }
}

ClusterModel::Answer ClusterModel::perform(const Action& action) {
  switch (action.kind) {
    case ActionKind::kEvent:
      events.push_back(fmt::format("{} {}", action.body["type"].get<std::string>(),
                                   action.body["reason"].get<std::string>()));
      return Answer::kDone;
    case ActionKind::kCreate:
      return create(action);
    case ActionKind::kDelete:
      return remove(action.object, action.body);
    case ActionKind::kStatus:
    case ActionKind::kPatch:
      break;
  }
  const auto found = store_.find(action.object);
  if (found == store_.end()) return Answer::kNotFound;
  Json object = found->second;
  if (action.kind == ActionKind::kStatus &&
      action.body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"])
    return Answer::kConflict;
  object.merge_patch(action.body);
  if (action.kind == ActionKind::kPatch && action.object.kind == "Pod") end_late(object);
  write(action.object, std::move(object));
  return Answer::kDone;
}

ClusterModel::Answer ClusterModel::create(const Action& action) {
  if (store_.contains(action.object)) return Answer::kExists;
  Json object = action.body;
  check_create(object);
  bodies[fmt::format("{}/{}", action.object.kind, action.object.name)] = object;
  ++creates[fmt::format("{}/{}", action.object.kind, action.object.name)];
  if (action.fill != Fill::kNothing) fills.insert(action.object.name);
  object["metadata"]["uid"] = fmt::format("uid-{}", version_ + 1);
  object["metadata"]["creationTimestamp"] = time_text(now_);
  if (action.object.kind == "Pod") object["status"]["phase"] = "Pending";
  if (action.object.kind == "Service" && !object["spec"].contains("clusterIP"))
    object["spec"]["clusterIP"] = "10.96.0.7";
  write(action.object, std::move(object));
  return Answer::kDone;
}

void ClusterModel::check_create(const Json& object) {
  const ObjectName name = name_of_object(object);
  const auto forbid = [&](const std::string& what) {
    violations.push_back(fmt::format("{}/{}: {}", name.kind, name.name, what));
  };
  if (!has_job()) return;
  if (is_true("Succeeded") || is_true("Failed")) forbid("made after the end");
  if (name.kind != "Pod") return;
  if (is_true("Suspended")) forbid("made while suspended");
  if (creates.contains("Pod/" + name.name) && !unseen_when_gone_.contains(name.name))
    forbid("made twice");
  const auto view = view_of(object);
  for (const Json* pod : list("Pod")) {
    const auto other = view_of(*pod);
    if (!view || !other || key_of(*view) != key_of(*other) || !is_live(*pod)) continue;
    if (other->member == Member::kLauncher || other->has_ended()) continue;
    forbid(fmt::format("made beside {}, which lives", other->name));
  }
  if (const std::string other = pod_of_another_image(object); !other.empty())
    forbid("has another agent than " + other);
}

/// Of the pods that live and that the status counts as the current ones. A launcher's Job that is
/// suspended is made again with another image, and its pod goes.
std::string ClusterModel::pod_of_another_image(const Json& made) const {
  const StatusDraft status(job(), now_);
  const auto is_current = [&](const Json& pod) {
    const auto view = view_of(pod);
    const Json* launcher = get("Job", "mnist-launcher");
    if (view && launcher != nullptr && view->controller == uid_of(*launcher) &&
        object_in(*launcher, "spec").value("suspend", false))
      return false;
    return view &&
           status.member(member_key(view->member, view->index)).generation == view->generation;
  };
  if (!is_current(made)) return "";
  for (const Json* pod : list("Pod"))
    if (is_live(*pod) && is_current(*pod) && agent_image_of(*pod) != agent_image_of(made))
      return text_in(object_in(*pod, "metadata"), "name");
  return "";
}

ClusterModel::Answer ClusterModel::remove(const ObjectName& name, const Json& body) {
  const auto found = store_.find(name);
  if (found == store_.end()) return Answer::kNotFound;
  Json object = found->second;
  if (text_in(object_in(body, "preconditions"), "uid") != uid_of(object)) return Answer::kConflict;
  if (name == job_name_) {
    delete_job();
    return Answer::kDone;
  }
  const bool runs = text_in(object_in(object, "status"), "phase") == "Running";
  if (name.kind != "Pod" || !runs || body.contains("gracePeriodSeconds")) {
    erase(name);
    return Answer::kDone;
  }
  object["metadata"]["deletionTimestamp"] = time_text(now_ + std::chrono::seconds(30));
  write(name, std::move(object));
  return Answer::kDone;
}

void ClusterModel::delete_job() {
  const std::string uid = uid_of(job());
  erase(job_name_);
  std::vector<ObjectName> owned;
  for (const auto& [name, object] : store_) {
    const std::string label =
        text_in(object_in(object_in(object, "metadata"), "labels"), kUidLabel);
    if (is_controlled_by(object, uid) || (name.kind == "Pod" && label == uid))
      owned.push_back(name);
  }
  for (const ObjectName& name : owned) erase(name);
}

bool ClusterModel::can_bind(const Json& pod) const {
  const std::string group = group_of(pod);
  if (group.empty() && store_.size() <= static_cast<size_t>(room)) return true;
  int bound = 0;
  int bound_of_group = 0;
  int in_group = 0;
  for (const Json* other : list("Pod")) {
    if (!is_live(*other)) continue;
    if (is_bound(*other)) ++bound;
    if (group_of(*other) != group) continue;
    ++in_group;
    if (is_bound(*other)) ++bound_of_group;
  }
  if (group.empty()) return bound < room;
  const Json* object = get("PodGroup", group);
  if (object == nullptr) return false;
  const int least = (*object)["spec"]["schedulingPolicy"]["gang"]["minCount"].get<int>();
  return in_group >= least && bound + std::max(1, least - bound_of_group) <= room;
}

/// Its launcher Job is gone.
bool ClusterModel::is_orphan(const Json& pod) const {
  const Json& labels = object_in(object_in(pod, "metadata"), "labels");
  if (text_in(labels, kRoleLabel) != name_of(Member::kLauncher)) return false;
  if (!has_job() || is_controlled_by(pod, job()["metadata"]["uid"])) return false;
  const auto jobs = list("Job");
  return std::none_of(jobs.begin(), jobs.end(), [&](const Json* owner) {
    return is_controlled_by(pod, (*owner)["metadata"]["uid"]);
  });
}

void ClusterModel::start_pod(const ObjectName& name) {
  Json pod = store_.at(name);
  pod["spec"]["nodeName"] = "node";
  pod["status"]["phase"] = "Running";
  pod["status"]["conditions"] =
      Json::array({Json::object({{"type", "Ready"}, {"status", "True"}})});
  for (const Json& container : pod["spec"]["containers"]) {
    pod["status"]["containerStatuses"].push_back(Json::object(
        {{"name", container["name"]}, {"ready", true}, {"state", {{"running", Json::object()}}}}));
  }
  write(name, std::move(pod));
}

/// Makes the pod of a launcher Job that has none, and ends that of a suspended one.
bool ClusterModel::run_job_controller(const ObjectName& name) {
  const Json& job = store_.at(name);
  if (!object_in(job, "spec").contains("template")) return false;
  const std::string pod_name = name.name + "-x";
  const bool has_pod = store_.contains({"Pod", pod_name});
  const bool is_over = object_in(job, "status").contains("conditions");
  const bool is_suspended = object_in(job, "spec").value("suspend", Json()) == Json(true);
  if (is_suspended && has_pod) {
    erase({"Pod", pod_name});
    return true;
  }
  if (is_over || is_suspended || has_pod) return false;
  Json pod = job["spec"]["template"];
  pod["kind"] = "Pod";
  pod["metadata"]["name"] = pod_name;
  pod["metadata"]["ownerReferences"] = Json::array(
      {Json::object({{"kind", "Job"}, {"uid", job["metadata"]["uid"]}, {"controller", true}})});
  pod["metadata"]["uid"] = fmt::format("uid-{}", version_ + 1);
  pod["metadata"]["creationTimestamp"] = time_text(now_);
  pod["status"]["phase"] = "Pending";
  write({"Pod", pod_name}, std::move(pod));
  return true;
}

bool ClusterModel::run_controllers_once() {
  std::vector<ObjectName> names;
  for (const auto& [name, object] : store_) {
    if (name.kind == "Pod" || name.kind == "Job") names.push_back(name);
  }
  std::shuffle(names.begin(), names.end(), random_);
  for (const ObjectName& name : names) {
    if (name.kind == "Job") {
      if (run_job_controller(name)) return true;
      continue;
    }
    if (run_pod(name)) return true;
  }
  return false;
}

/// A deleted pod goes, one that waits starts. False if there is nothing to do.
bool ClusterModel::run_pod(const ObjectName& name) {
  const Json& pod = store_.at(name);
  if (is_deleting(pod) || is_orphan(pod)) {
    erase(name);
    return true;
  }
  if (text_in(object_in(pod, "status"), "phase") != "Pending" || !can_bind(pod)) return false;
  start_pod(name);
  return true;
}

bool ClusterModel::harm_random_pod(Harm harm) {
  std::vector<std::string> names;
  for (const Json* pod : list("Pod")) {
    const auto view = view_of(*pod);
    if (view && view->member != Member::kLauncher && is_live(*pod)) names.push_back(view->name);
  }
  return !names.empty() && harm_pod(names[random_() % names.size()], harm);
}

bool ClusterModel::harm_pod(const std::string& name, Harm harm) {
  const ObjectName object{"Pod", name};
  if (!store_.contains(object)) return false;
  Json pod = store_.at(object);
  ++harms[key_of(*view_of(pod))];
  if (harm == Harm::kVanish) {
    erase(object);
    return true;
  }
  if (harm == Harm::kDelete) {
    pod["metadata"]["deletionTimestamp"] = time_text(now_ + std::chrono::seconds(30));
    write(object, std::move(pod));
    return true;
  }
  if (harm == Harm::kEvict) {
    pod["status"] = Json::object({{"phase", "Failed"}, {"reason", "Evicted"}});
    write(object, std::move(pod));
    return true;
  }
  const bool of_memory = harm == Harm::kOutOfMemory;
  Json ended = Json::object({{"exitCode", of_memory ? 137 : 1}});
  if (of_memory) ended["reason"] = "OOMKilled";
  const bool is_head = view_of(pod)->member == Member::kHead;
  if (is_head && !of_memory)
    ended["message"] = std::string(kJobFailedMark) + "ValueError (rank 0 on worker-0)";
  end_container(name, own_name(pod), ended);
  return true;
}

void ClusterModel::end_container(const std::string& pod, const std::string& container,
                                 const Json& terminated) {
  Json object = store_.at({"Pod", pod});
  Json& status = object["status"];
  if (!status.contains("containerStatuses")) status["containerStatuses"] = Json::array();
  Json& statuses = status["containerStatuses"];
  Json ended = Json::object(
      {{"name", container}, {"ready", false}, {"state", {{"terminated", terminated}}}});
  const auto there = std::find_if(statuses.begin(), statuses.end(),
                                  [&](const Json& each) { return each["name"] == container; });
  if (there == statuses.end()) {
    statuses.push_back(std::move(ended));
  } else {
    *there = std::move(ended);
  }
  status["conditions"] = Json::array({Json::object({{"type", "Ready"}, {"status", "False"}})});
  bool failed = false;
  bool is_over = statuses.size() >= object["spec"]["containers"].size();
  for (const Json& each : statuses) {
    const Json& end = object_in(object_in(each, "state"), "terminated");
    is_over = is_over && !end.empty();
    failed = failed || end.value("exitCode", 0) != 0;
  }
  if (is_over) status["phase"] = failed ? "Failed" : "Succeeded";
  write({"Pod", pod}, std::move(object));
}

void ClusterModel::change_spec(const Json& merge_patch) {
  Json object = job();
  object["spec"].merge_patch(merge_patch);
  object["metadata"]["generation"] = object["metadata"]["generation"].get<int>() + 1;
  write(job_name_, std::move(object));
}

void ClusterModel::end_well(const std::string& pod) {
  Json ended = store_.at({"Pod", pod});
  ended["status"]["phase"] = "Succeeded";
  write({"Pod", pod}, std::move(ended));
}

void ClusterModel::finish_ranks() {
  std::vector<ObjectName> names;
  for (const auto& [name, object] : store_) names.push_back(name);
  for (const ObjectName& name : names) {
    Json object = store_.at(name);
    if (name.kind == "Job" && containers_of(object["spec"]["template"]).size() == 1) {
      object["status"]["conditions"] =
          Json::array({Json::object({{"type", "Complete"}, {"status", "True"}})});
      object["status"]["completionTime"] = time_text(now_);
      write(name, std::move(object));
      continue;
    }
    if (name.kind != "Pod" || has_ended(object)) continue;
    const auto view = view_of(object);
    if (!view || view->member != ends_with(job())) continue;
    if (containers_of(object).size() > 1) {
      end_container(name.name, own_name(object), {{"exitCode", 0}});
      continue;
    }
    object["status"] = Json::object({{"phase", "Succeeded"}});
    write(name, std::move(object));
  }
}

void ClusterModel::fail_launcher(const std::string& reason) {
  for (const Json* found : list("Job")) {
    Json object = *found;
    object["status"]["conditions"] = Json::array({Json::object(
        {{"type", "Failed"}, {"status", "True"}, {"reason", reason}, {"message", "it failed"}})});
    put(std::move(object));
    return;
  }
}

bool ClusterModel::settle() {
  constexpr int kMostTurns = 2000;
  for (int turn = 0; turn < kMostTurns; ++turn) {
    deliver_all();
    const size_t tried = reconcile_once({});
    // Each turn looks at all objects: of a large job several pods start in one.
    const size_t steps = 1 + store_.size() / 32;
    bool moved = false;
    for (size_t i = 0; i < steps; ++i) moved = run_controllers_once() || moved;
    if (tried > 0 || moved) continue;
    // Deadlines are days away; back-offs and deferred writes are not.
    if (!last_.look_again || *last_.look_again > now_ + std::chrono::hours(1)) return true;
    now_ = std::max(now_ + std::chrono::seconds(1), *last_.look_again);
  }
  return false;
}

const Json* ClusterModel::get(const std::string& kind, const std::string& name) const {
  const auto found = store_.find({kind, name});
  return found == store_.end() ? nullptr : &found->second;
}

std::vector<const Json*> ClusterModel::list(const std::string& kind) const {
  std::vector<const Json*> objects;
  for (const auto& [name, object] : store_) {
    if (name.kind == kind) objects.push_back(&object);
  }
  return objects;
}

std::string ClusterModel::state() const { return text_in(object_in(job(), "status"), "state"); }

bool ClusterModel::is_true(const std::string& condition) const {
  return StatusDraft(job(), now_).is_true(condition);
}

std::set<std::string> ClusterModel::live_pods() const {
  std::set<std::string> names;
  for (const Json* pod : list("Pod")) {
    if (is_live(*pod)) names.insert(text_in(object_in(*pod, "metadata"), "name"));
  }
  return names;
}

}  // namespace corro::kube
