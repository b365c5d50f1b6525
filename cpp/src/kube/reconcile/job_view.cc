#include "kube/reconcile/job_view.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

const Json& job_of(const Observed& observed) {
  static const Json kNone = Json::object();
  return observed.job == nullptr ? kNone : *observed.job;
}

ObjectName name_in(const Json& object) {
  return {text_in(object, "kind"), text_in(object_in(object, "metadata"), "name")};
}

auto order_of(const PodView& pod) { return std::tuple(pod.member, pod.index, pod.generation); }

/// What the caches show of a name that was made again is gone, so nobody's.
bool is_owned_by(const std::string& owner, const Observed& observed, const Json& object) {
  return is_controlled_by(object, owner) && !observed.expected.is_created(name_in(object));
}

/// The one object of this name that the job controls; null if there is none.
const Json* own_object(const JobSpec& spec, const Observed& observed, std::string_view kind,
                       const std::string& name) {
  for (const Json* object : observed.objects) {
    if (text_in(*object, "kind") != kind) continue;
    if (text_in(object_in(*object, "metadata"), "name") != name) continue;
    return is_owned_by(spec.uid, observed, *object) ? object : nullptr;
  }
  return nullptr;
}

/// Whose controller is the job, a launcher's the launcher Job. Labels anybody can set.
std::vector<PodView> own_pods(const JobSpec& spec, const Observed& observed) {
  const Json* job = own_object(spec, observed, "Job", launcher_host(spec));
  const std::string job_uid =
      job == nullptr ? std::string() : text_in(object_in(*job, "metadata"), "uid");
  std::vector<PodView> pods;
  for (const Json* pod : observed.pods) {
    auto view = view_of(*pod);
    if (!view) continue;
    const bool by_job = view->member == Member::kLauncher && !spec.launcher_is_pod();
    const std::string& owner = by_job ? job_uid : spec.uid;
    if (!owner.empty() && is_owned_by(owner, observed, *pod)) pods.push_back(std::move(*view));
  }
  std::sort(pods.begin(), pods.end(), [](const PodView& left, const PodView& right) {
    return order_of(left) < order_of(right);
  });
  return pods;
}

}  // namespace

JobView::JobView(const ReadJob& read, const Observed& seen, KubeTime time)
    : spec(read.spec),
      job(read),
      observed(seen),
      options(*seen.options),
      now(time),
      gang(choose_gang(read.spec, *seen.options)),
      status(job_of(seen), time),
      pods(own_pods(read.spec, seen)) {}

const PodView* JobView::find(Member member, int index, int generation) const {
  const auto wanted = std::tuple(member, index, generation);
  const auto found =
      std::lower_bound(pods.begin(), pods.end(), wanted,
                       [](const PodView& pod, const auto& place) { return order_of(pod) < place; });
  return found == pods.end() || order_of(*found) != wanted ? nullptr : &*found;
}

const PodView* JobView::current(Member member, int index) const {
  return find(member, index, state(member, index).generation);
}

bool JobView::is_alive(const PodView& pod) const {
  return !pod.has_ended() && !pod.is_deleting && !observed.expected.deleted.contains(pod.uid);
}

const Json* JobView::object(std::string_view kind, const std::string& name) const {
  return own_object(spec, observed, kind, name);
}

std::vector<const Json*> JobView::objects(std::string_view kind) const {
  std::vector<const Json*> own;
  std::copy_if(observed.objects.begin(), observed.objects.end(), std::back_inserter(own),
               [&](const Json* object) {
                 return text_in(*object, "kind") == kind &&
                        is_owned_by(spec.uid, observed, *object);
               });
  return own;
}

bool JobView::is_expected(std::string_view kind, const std::string& name) const {
  return observed.expected.is_created({std::string(kind), name});
}

MemberState JobView::state(Member member, int index) const {
  return status.member(member_key(member, index));
}

void JobView::set_state(Member member, int index, const MemberState& state) {
  status.set_member(member_key(member, index), state);
}

bool JobView::is_foreign(const ObjectName& name) const {
  if (observed.foreign.contains(name)) return true;
  return std::any_of(observed.objects.begin(), observed.objects.end(), [&](const Json* object) {
    return name_in(*object) == name && !is_controlled_by(*object, spec.uid);
  });
}

bool JobView::is_refused(const ObjectName& name, const char* what) {
  const auto refusal = observed.refused.find(name);
  if (refusal == observed.refused.end()) return false;
  const bool is_wrong = refusal->second.wrong_generation != 0;
  if (is_wrong && refusal->second.wrong_generation != spec.generation) return false;
  const KubeTime next = refusal->second.at + (is_wrong ? kRetryWrong : kRetryRefused);
  if (now >= next) return false;
  block(is_wrong ? "CreateInvalid" : what,
        fmt::format("{} {}: {}; tried again at {}{}", name.kind, name.name, refusal->second.message,
                    time_text(next), is_wrong ? ", or once the job is changed" : ""));
  look_again(next);
  return true;
}

bool JobView::ensure(const ObjectName& name, const std::function<Json()>& make, Fill fill,
                     std::vector<std::string> members) {
  if (object(name.kind, name.name) != nullptr) return true;
  if (is_foreign(name)) {
    block("ErrResourceExists",
          fmt::format(R"(Resource "{}" of Kind "{}" already exists and is not managed by {})",
                      name.name, name.kind, spec.kind_name()));
    return false;
  }
  if (is_expected(name.kind, name.name)) return true;
  if (is_refused(name)) return false;
  Json object = make();
  const std::string api_version = text_in(object, "apiVersion");
  writes_.push_back(
      {ActionKind::kCreate, api_version, name, std::move(object), fill, std::move(members)});
  return true;
}

void JobView::patch(const Json& object, Json change) {
  patch(text_in(object, "apiVersion"), name_in(object), std::move(change));
}

void JobView::patch(std::string api_version, const ObjectName& name, Json change) {
  if (is_refused(name)) return;
  writes_.push_back({.kind = ActionKind::kPatch,
                     .api_version = std::move(api_version),
                     .object = name,
                     .body = std::move(change)});
}

void JobView::remove_object(const Json& object) {
  const std::string uid = text_in(object_in(object, "metadata"), "uid");
  if (object_in(object, "metadata").contains("deletionTimestamp")) return;
  if (observed.expected.deleted.contains(uid)) return;
  if (is_refused(name_in(object), "DeleteRefused")) return;
  Json body = Json::object({{"propagationPolicy", "Background"}});
  body["preconditions"]["uid"] = uid;
  deletes_.push_back({.kind = ActionKind::kDelete,
                      .api_version = text_in(object, "apiVersion"),
                      .object = name_in(object),
                      .body = std::move(body)});
}

void JobView::remove_pod(const PodView& pod) {
  if (pod.is_deleting || observed.expected.deleted.contains(pod.uid)) return;
  if (is_refused({"Pod", pod.name}, "DeleteRefused")) return;
  Json body = Json::object();
  body["preconditions"]["uid"] = pod.uid;
  deletes_.push_back({.kind = ActionKind::kDelete,
                      .api_version = "v1",
                      .object = {"Pod", pod.name},
                      .body = std::move(body)});
}

void JobView::force_remove_pod(const PodView& pod) {
  if (is_refused({"Pod", pod.name}, "DeleteRefused")) return;
  Json body = Json::object({{"gracePeriodSeconds", 0}});
  body["preconditions"]["uid"] = pod.uid;
  deletes_.push_back({.kind = ActionKind::kDelete,
                      .api_version = "v1",
                      .object = {"Pod", pod.name},
                      .body = std::move(body)});
}

void JobView::stop_pod(const PodView& pod) {
  if (pod.is_over || pod.is_deleting || pod.is_stopped) return;
  patch("v1", {"Pod", pod.name},
        Json::object({{"spec", {{"activeDeadlineSeconds", kStopSeconds}}}}));
}

void JobView::event(std::string_view type, std::string_view reason, std::string_view message) {
  events_.push_back(
      {.kind = ActionKind::kEvent,
       .api_version = spec.api_version,
       .object = {std::string(spec.kind_name()), spec.name},
       .body = Json::object({{"type", type}, {"reason", reason}, {"message", message}})});
}

void JobView::look_again(KubeTime at) {
  if (!look_again_ || at < *look_again_) look_again_ = at;
}

void JobView::block(std::string reason, std::string message) {
  if (!blocked_) blocked_ = Block{std::move(reason), std::move(message)};
}

std::string JobView::reason_of(std::string_view what) const {
  return fmt::format("{}{}", spec.kind_name(), what);
}

std::string JobView::title() const {
  return fmt::format("{} {}/{}", spec.kind_name(), spec.space, spec.name);
}

Decision JobView::decide() {
  Decision decision;
  Json change = status.patch();
  const auto written = observed.expected.status_written;
  const bool is_due = !written || now >= *written + kMinorStatusEvery || now < *written;
  if (!change.is_null() && (is_due || status.is_urgent())) {
    decision.actions.push_back({.kind = ActionKind::kStatus,
                                .api_version = spec.api_version,
                                .object = {std::string(spec.kind_name()), spec.name},
                                .body = std::move(change)});
  } else if (!change.is_null()) {
    look_again(*written + kMinorStatusEvery);
  }
  for (auto* part : {&writes_, &deletes_, &events_})
    std::move(part->begin(), part->end(), std::back_inserter(decision.actions));
  decision.reason = status.text("state");
  if (blocked_) decision.reason += fmt::format(": {}: {}", blocked_->reason, blocked_->message);
  decision.look_again = look_again_;
  return decision;
}

}  // namespace corro::kube
