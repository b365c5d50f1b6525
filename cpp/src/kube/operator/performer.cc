#include "kube/operator/performer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/unix_time.h"
#include "kube/reconcile/pod_view.h"

namespace corro::kube {
namespace {

constexpr const char* kController = "training.corro.dev/operator";
/// What events.k8s.io takes of a note.
constexpr size_t kMostNoteBytes = 1000;

std::string_view verb_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kStatus:
      return "status";
    case ActionKind::kCreate:
      return "create";
    case ActionKind::kPatch:
      return "patch";
    case ActionKind::kDelete:
      return "delete";
    case ActionKind::kEvent:
      break;
  }
  return "event";
}

std::string_view name_of(Ended ended) {
  switch (ended) {
    case Ended::kDone:
      return "done";
    case Ended::kStale:
      return "stale";
    case Ended::kForeign:
      return "foreign";
    case Ended::kRefused:
      return "refused";
    case Ended::kFailed:
      break;
  }
  return "failed";
}

Outcome failed(const Status& status) { return {Ended::kFailed, std::string(status.message()), {}}; }

/// Of a patch or a status.
Outcome outcome_of_write(Result<Json> answer) {
  if (answer.ok()) return {Ended::kDone, "", std::move(*answer)};
  const Code code = answer.status().code();
  // 404: whoever took it away will be told by a watch.
  if (code == Code::kAborted || code == Code::kNotFound)
    return {Ended::kStale, std::string(answer.status().message()), {}};
  return failed(answer.status());
}

/// Of an object of ours, which a webhook or a quota may refuse.
Outcome outcome_of_patch(Result<Json> answer) {
  const Code code = answer.status().code();
  if (code == Code::kInvalidArgument || code == Code::kPermissionDenied)
    return {Ended::kRefused, std::string(answer.status().message()), {}};
  return outcome_of_write(std::move(answer));
}

/// A note is cut at a character's begin.
std::string cut_note(std::string note) {
  if (note.size() <= kMostNoteBytes) return note;
  size_t size = kMostNoteBytes;
  while (size > 0 && (static_cast<unsigned char>(note[size]) & 0xC0U) == 0x80U) --size;
  note.resize(size);
  return note;
}

Json event_of(const JobIdentity& job, const Action& action, const std::string& me, UnixTime time) {
  const std::string name =
      fmt::format("{}.{:x}", job.name.substr(0, 200), time.time_since_epoch().count());
  Json event = {{"apiVersion", "events.k8s.io/v1"}, {"kind", "Event"}, {"action", "Reconcile"}};
  event["metadata"] = {{"name", name}, {"namespace", job.space}};
  event["eventTime"] = rfc3339_micro(time);
  event["reportingController"] = kController;
  event["reportingInstance"] = me.substr(0, 128);
  event["type"] = text_in(action.body, "type");
  event["reason"] = text_in(action.body, "reason").substr(0, 128);
  event["note"] = cut_note(text_in(action.body, "message"));
  event["regarding"] = {{"apiVersion", action.api_version},
                        {"kind", job.kind},
                        {"namespace", job.space},
                        {"name", job.name},
                        {"uid", job.uid}};
  return event;
}

}  // namespace

Outcome Performer::perform(const std::vector<Kind>& kinds, const JobIdentity& job,
                           const Action& action, const std::stop_token& stop) {
  const corro::Time begin = client_.surroundings().now();
  const Kind* kind = find_kind(kinds, action.api_version, action.object.kind);
  const auto call = [&]() -> Outcome {
    if (action.kind == ActionKind::kEvent) return create_event(job, action, stop);
    if (kind == nullptr)
      return {
          Ended::kRefused, fmt::format("the cluster does not serve {}", action.api_version), {}};
    const ObjectKey key{job.space, action.object.name};
    switch (action.kind) {
      case ActionKind::kStatus:
        return outcome_of_write(client_.merge_patch(kind->type, key, action.body, "status", stop));
      case ActionKind::kPatch:
        return outcome_of_patch(client_.merge_patch(kind->type, key, action.body, "", stop));
      case ActionKind::kDelete:
        return remove(*kind, key, action.body, stop);
      case ActionKind::kCreate:
      case ActionKind::kEvent:
        break;
    }
    return create(*kind, job, action, stop);
  };
  Outcome outcome = call();
  metrics_.called(verb_of(action.kind), client_.surroundings().now() - begin,
                  name_of(outcome.ended));
  return outcome;
}

Result<Json> Performer::read_job(const JobIdentity& job, const std::stop_token& stop) {
  const Kind& kind = job.kind == kMpiJobKind.name ? kMpiJobKind : kCorroJobKind;
  return client_.get(kind.type, {job.space, job.name}, stop);
}

Outcome Performer::create(const Kind& kind, const JobIdentity& job, const Action& action,
                          const std::stop_token& stop) {
  Json object = action.body;
  if (action.fill != Fill::kNothing) {
    const auto data = fill_(job, action);
    if (!data.ok()) return failed(data.status());
    for (const auto& [name, bytes] : *data) object["data"][name] = encode_base64(bytes);
  }
  // A template keeps fields that are none, and a misspelt one would be dropped in silence. MPIJobs
  // are taken as they always were.
  const bool is_strict = kind.name == "Pod" && job.kind == kCorroJobKind.name;
  auto answer = client_.create(kind.type, {job.space, action.object.name}, object, stop,
                               is_strict ? "Strict" : "");
  if (answer.ok()) return {Ended::kDone, "", std::move(*answer)};
  switch (answer.status().code()) {
    case Code::kAlreadyExists:
      return look_up(kind, job, action.object.name, stop);
    case Code::kInvalidArgument:
      return {Ended::kRefused, std::string(answer.status().message()), {}, true};
    case Code::kPermissionDenied:
    case Code::kNotFound:  // The namespace, or the kind.
      return {Ended::kRefused, std::string(answer.status().message()), {}};
    default:
      return failed(answer.status());
  }
}

Outcome Performer::look_up(const std::vector<Kind>& kinds, const JobIdentity& job,
                           const std::string& api_version, const ObjectName& object,
                           const std::stop_token& stop) {
  const Kind* kind = find_kind(kinds, api_version, object.kind);
  if (kind == nullptr || !kind->is_watched) return {Ended::kStale, "it may not be read", {}};
  return look_up(*kind, job, object.name, stop);
}

/// Secrets may not be read; their names have the job's uid.
Outcome Performer::look_up(const Kind& kind, const JobIdentity& job, const std::string& name,
                           const std::stop_token& stop) {
  if (!kind.is_watched) return {};
  auto there = client_.get(kind.type, {job.space, name}, stop);
  if (!there.ok())
    return there.status().code() == Code::kNotFound ? Outcome{Ended::kStale, "it has gone", {}}
                                                    : failed(there.status());
  if (is_controlled_by(*there, job.uid)) return {Ended::kDone, "", std::move(*there)};
  return {Ended::kForeign, fmt::format("{} {} is not of this job", kind.name, name), {}};
}

Outcome Performer::remove(const Kind& kind, const ObjectKey& key, const Json& body,
                          const std::stop_token& stop) {
  DeleteOptions options;
  options.uid = text_in(object_in(body, "preconditions"), "uid");
  if (const auto grace = body.find("gracePeriodSeconds"); grace != body.end())
    options.grace_seconds = grace->get<uint32_t>();
  const Status status = client_.remove(kind.type, key, options, stop);
  if (status.ok() || status.code() == Code::kNotFound) return {};
  if (status.code() == Code::kAborted) return {Ended::kStale, std::string(status.message()), {}};
  if (status.code() == Code::kPermissionDenied)
    return {Ended::kRefused, std::string(status.message()), {}};
  return failed(status);
}

/// Two events of one job in one microsecond: the second one gets another name.
Outcome Performer::create_event(const JobIdentity& job, const Action& action,
                                const std::stop_token& stop) {
  constexpr int kMostTrials = 3;
  UnixTime time = client_.surroundings().wall();
  for (int trial = 0;; ++trial, time += std::chrono::microseconds(1)) {
    const Json event = event_of(job, action, me_, time);
    const auto answer = client_.create(kEvents, {job.space, ""}, event, stop);
    if (answer.ok()) return {};
    if (answer.status().code() != Code::kAlreadyExists || trial == kMostTrials)
      return failed(answer.status());
  }
}

}  // namespace corro::kube
