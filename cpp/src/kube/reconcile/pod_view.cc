#include "kube/reconcile/pod_view.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "kube/reconcile/injection.h"
#include "kube/reconcile/own_container.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

/// Longer words of the cluster are cut: a condition has to stay readable.
constexpr size_t kMostWords = 300;

std::string cut(std::string text) {
  if (text.size() > kMostWords) text.resize(kMostWords);
  return text;
}

int number_in(const Json& object, std::string_view field) {
  const std::string text = text_in(object, field);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : -1;
}

std::optional<Member> member_in(const Json& labels) {
  const std::string role = text_in(labels, kRoleLabel);
  for (const Member member : {Member::kHead, Member::kWorker, Member::kLauncher}) {
    if (role == name_of(member)) return member;
  }
  return {};
}

PodPhase phase_in(const Json& status) {
  const std::string phase = text_in(status, "phase");
  if (phase == "Running") return PodPhase::kRunning;
  if (phase == "Succeeded") return PodPhase::kSucceeded;
  return phase == "Failed" || phase == "Unknown" ? PodPhase::kFailed : PodPhase::kPending;
}

const Json* condition_in(const Json& status, std::string_view type) {
  const auto conditions = status.find("conditions");
  if (conditions == status.end() || !conditions->is_array()) return nullptr;
  for (const Json& condition : *conditions) {
    if (text_in(condition, "type") == type) return &condition;
  }
  return nullptr;
}

/// Calls visit(state) for what each container's status has in "state" until it returns true.
template <typename Visit>
bool any_container(const Json& status, std::string_view list, Visit&& visit) {
  const auto containers = status.find(list);
  if (containers == status.end() || !containers->is_array()) return false;
  return std::any_of(containers->begin(), containers->end(),
                     [&](const Json& container) { return visit(object_in(container, "state")); });
}

bool was_disrupted(const Json& status) {
  constexpr std::array kReasons = {"Evicted",      "Preempting",   "NodeLost",
                                   "NodeShutdown", "NodeAffinity", "Shutdown",
                                   "Terminated",   "OutOfcpu",     "OutOfmemory",
                                   "Preempted",    "Preemption",   "UnexpectedAdmissionError"};
  const std::string reason = text_in(status, "reason");
  if (text_in(status, "phase") == "Unknown") return true;
  if (std::find(kReasons.begin(), kReasons.end(), reason) != kReasons.end()) return true;
  const Json* condition = condition_in(status, "DisruptionTarget");
  return condition != nullptr && text_in(*condition, "status") == "True";
}

/// The agent says so of a rank, and an elastic job's head of one that nobody could go on without.
bool is_of_memory(std::string_view message) {
  constexpr std::string_view kCause = "out of memory";
  return message.starts_with(kOutOfMemoryMark) ||
         (message.starts_with(kJobFailedMark) &&
          message.substr(kJobFailedMark.size()).starts_with(kCause));
}

/// What an elastic job's head says of the ranks, if it led them to an end.
void read_last_word(std::string_view message, PodView& view) {
  const bool lost_workers = message.starts_with(kLostWorkersMark);
  if (lost_workers) view.cause = Cause::kLostPod;
  view.ends_round = lost_workers || message.starts_with(kJobFailedMark);
}

/// What corro's own container did, or else one that had to end before it. Of a pod whose spec does
/// not tell which one is corro's, what any did.
void read_container_ends(const Json& status, const OwnContainer& own, PodView& view) {
  const auto visit = [&](const Json& state) {
    const Json& ended = object_in(state, "terminated");
    const auto code = ended.find("exitCode");
    if (code == ended.end() || !code->is_number_integer() || *code == 0) return false;
    const std::string message = text_in(ended, "message");
    const bool of_memory = text_in(ended, "reason") == "OOMKilled" || is_of_memory(message);
    if (of_memory) view.cause = Cause::kOutOfMemory;
    if (*code == kLostHeadExit && message.starts_with(kLostHeadMark)) view.cause = Cause::kLostPod;
    if (view.member == Member::kHead) read_last_word(message, view);
    view.why = of_memory ? "out of memory" : fmt::format("exit code {}", code->get<int64_t>());
    if (!message.empty()) view.why += ": " + cut(message);
    return of_memory;
  };
  if (own.status != nullptr) (void)visit(object_in(*own.status, "state"));
  if (own.has_ended) return;
  if (!own.is_known && any_container(status, "containerStatuses", visit)) return;
  any_container(status, "initContainerStatuses", visit);
}

/// Why it ended or is going to: what the kubelet said first, then what the containers did.
void read_end(const Json& status, const OwnContainer& own, PodView& view) {
  view.cause = Cause::kUserError;
  view.why = "failed";
  read_container_ends(status, own, view);
  if (view.cause == Cause::kOutOfMemory) return;
  const std::string& reason = view.status_reason;
  // A pod that is being deleted ends by the signal of that, whatever its exit code is.
  if (!view.is_deleting && !was_disrupted(status)) {
    if (!reason.empty()) view.why = fmt::format("{}: {}", reason, view.why);
    return;
  }
  view.cause = Cause::kLostPod;
  view.ends_round = false;  // The next head reads in the record what this one has said.
  const Json* disruption = condition_in(status, "DisruptionTarget");
  if (disruption == nullptr) disruption = condition_in(status, "TerminationTarget");  // Kueue's.
  const std::string message =
      disruption == nullptr ? text_in(status, "message") : text_in(*disruption, "message");
  view.why = !reason.empty()         ? reason
             : disruption != nullptr ? text_in(*disruption, "reason")
                                     : "deleted";
  if (!message.empty()) view.why += ": " + cut(message);
}

/// A pod that was ended as a whole, by its node or for its deadline, has failed even if its
/// containers took SIGTERM well.
void read_phase(const Json& status, const OwnContainer& own, PodView& view) {
  view.phase = phase_in(status);
  view.is_over = view.has_ended();
  const bool was_ended =
      view.phase == PodPhase::kFailed && (!view.status_reason.empty() || was_disrupted(status));
  if (!own.has_ended || was_ended) return;
  view.phase = own.has_failed ? PodPhase::kFailed : PodPhase::kSucceeded;
}

bool waits_for_queue(const Json& pod_spec) {
  const auto gates = pod_spec.find("schedulingGates");
  if (gates == pod_spec.end() || !gates->is_array()) return false;
  return std::any_of(gates->begin(), gates->end(),
                     [](const Json& gate) { return text_in(gate, "name") == kQueueGate; });
}

void read_trouble(const Json& pod, PodView& view) {
  const Json& status = object_in(pod, "status");
  if (waits_for_queue(object_in(pod, "spec"))) {
    const Json& labels = object_in(object_in(pod, "metadata"), "labels");
    view.trouble = fmt::format("waits in queue {} of Kueue", text_in(labels, kQueueLabel));
    return;
  }
  const auto waits = [&](const Json& state) {
    const Json& waiting = object_in(state, "waiting");
    const std::string reason = text_in(waiting, "reason");
    if (reason.empty() || reason == "ContainerCreating" || reason == "PodInitializing")
      return false;
    const std::string message = text_in(waiting, "message");
    view.trouble = message.empty() ? reason : fmt::format("{}: {}", reason, cut(message));
    return true;
  };
  if (any_container(status, "initContainerStatuses", waits)) return;
  if (any_container(status, "containerStatuses", waits)) return;
  const Json* scheduled = condition_in(status, "PodScheduled");
  if (scheduled == nullptr || text_in(*scheduled, "status") != "False") return;
  view.trouble =
      fmt::format("{}: {}", text_in(*scheduled, "reason"), cut(text_in(*scheduled, "message")));
}

/// Images of many gigabytes are pulled for minutes.
std::string preparation_of(const Json& status, const PodView& view) {
  const auto is_prepared = [](const Json& state) {
    const std::string reason = text_in(object_in(state, "waiting"), "reason");
    return reason == "ContainerCreating" || reason == "PodInitializing";
  };
  const auto is_running = [](const Json& state) { return state.contains("running"); };
  const bool waits = view.is_bound() && view.phase == PodPhase::kPending &&
                     any_container(status, "containerStatuses", is_prepared);
  if (!waits || any_container(status, "initContainerStatuses", is_running)) return "";
  const Json* begun = condition_in(status, "PodReadyToStartContainers");
  const bool has_volumes = begun != nullptr && text_in(*begun, "status") == "True";
  return fmt::format("its image is pulled{} on node {}",
                     has_volumes ? "" : " or its volumes are mounted", view.node);
}

}  // namespace

std::string text_in(const Json& object, std::string_view field) {
  if (!object.is_object()) return "";
  const auto found = object.find(field);
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

const Json& object_in(const Json& object, std::string_view field) {
  static const Json kNone = Json::object();
  if (!object.is_object()) return kNone;
  const auto found = object.find(field);
  return found == object.end() || !found->is_object() ? kNone : *found;
}

std::string group_named_in(const Json& pod_spec) {
  return text_in(object_in(pod_spec, "schedulingGroup"), "podGroupName");
}

std::string controller_of(const Json& object) {
  const Json& metadata = object_in(object, "metadata");
  const auto owners = metadata.find("ownerReferences");
  if (owners == metadata.end() || !owners->is_array()) return "";
  const auto found = std::find_if(owners->begin(), owners->end(), [](const Json& owner) {
    return owner.is_object() && owner.value("controller", Json()) == Json(true);
  });
  return found == owners->end() ? "" : text_in(*found, "uid");
}

bool is_controlled_by(const Json& object, const std::string& uid) {
  return controller_of(object) == uid;
}

std::optional<PodView> view_of(const Json& pod) {
  const Json& metadata = object_in(pod, "metadata");
  const Json& labels = object_in(metadata, "labels");
  const Json& status = object_in(pod, "status");
  const auto member = member_in(labels);
  if (!member) return {};
  PodView view;
  view.name = text_in(metadata, "name");
  view.uid = text_in(metadata, "uid");
  view.controller = controller_of(pod);
  view.group = group_named_in(object_in(pod, "spec"));
  view.node = text_in(object_in(pod, "spec"), "nodeName");
  view.member = *member;
  view.index = view.member == Member::kWorker ? number_in(labels, kIndexLabel) : 0;
  view.generation = std::max(number_in(labels, kGenerationLabel), 0);
  view.round = std::max(number_in(object_in(metadata, "annotations"), kRoundAnnotation), 0);
  if (view.index < 0) return {};
  const OwnContainer own = own_container_of(pod);
  view.is_stopped = object_in(pod, "spec").value("activeDeadlineSeconds", Json()) == kStopSeconds;
  // The deadline that stopped a pod is not why it ended.
  if (!view.is_stopped || text_in(status, "reason") != "DeadlineExceeded") {
    view.status_reason = text_in(status, "reason");
    view.status_message = text_in(status, "message");
  }
  read_phase(status, own, view);
  view.created = time_in(metadata, "creationTimestamp");
  view.deletion = time_in(metadata, "deletionTimestamp");
  view.is_deleting = metadata.contains("deletionTimestamp");
  const Json* ready = condition_in(status, "Ready");
  view.is_ready = view.phase == PodPhase::kRunning && !view.is_deleting &&
                  (own.is_ready || ready == nullptr || text_in(*ready, "status") == "True");
  view.others_that_run = own.others_that_run;
  if (view.is_lost()) read_end(status, own, view);
  if (!view.is_ready) read_trouble(pod, view);
  const Json* begun = condition_in(status, "PodReadyToStartContainers");
  view.waits_for_volumes = view.is_bound() && view.phase == PodPhase::kPending &&
                           begun != nullptr && text_in(*begun, "status") == "False";
  view.preparation = preparation_of(status, view);
  return view;
}

}  // namespace corro::kube
