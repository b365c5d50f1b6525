#include "kube/operator/job_table.h"

#include <charconv>
#include <cstdint>
#include <utility>

#include "kube/client/json.h"
#include "kube/job/names.h"
#include "kube/reconcile/job_view.h"
#include "kube/reconcile/trimmed.h"

namespace corro::kube {
namespace {

uint64_t version_of(const Json& object) {
  const std::string text = text_at(object, {"metadata", "resourceVersion"});
  uint64_t version = 0;
  std::from_chars(text.data(), text.data() + text.size(), version);
  return version;
}

std::string uid_of(const Json& object) { return text_at(object, {"metadata", "uid"}); }

/// Whose object it is; "" for nobody's. An object of another namespace is not the job's, whatever
/// its label says.
std::string job_key(const Kind& kind, const Json& object) {
  const std::string uid =
      kind.is_job ? uid_of(object) : text_at(object, {"metadata", "labels", kUidLabel});
  return uid.empty() ? uid : text_at(object, {"metadata", "namespace"}) + "/" + uid;
}

ObjectName name_of(const Kind& kind, const Json& object) {
  return {std::string(kind.name), text_at(object, {"metadata", "name"})};
}

/// Lists of built-in types leave them out.
void say_kind(const Kind& kind, Json& object) {
  object["kind"] = kind.name;
  if (!object.contains("apiVersion")) object["apiVersion"] = kind.api_version;
}

bool is_of(const Kind& kind, const Json& object) {
  return find_kind({kind}, text_at(object, {"apiVersion"}), text_at(object, {"kind"})) != nullptr;
}

void forget_manifest(JobRecord& record) {
  JobRecord rest;
  rest.objects = std::move(record.objects);
  record = std::move(rest);
}

void forget_object(JobRecord& record, const ObjectName& name) {
  const auto known = record.objects.find(name);
  if (known == record.objects.end()) return;
  record.expected.deleted.erase(uid_of(known->second));
  record.objects.erase(known);
}

}  // namespace

void put_job(JobRecord& record, Json job) {
  if (!record.job.is_null() && version_of(job) < version_of(record.job)) return;
  trim(job);
  record.job = std::move(job);
}

Observed JobRecord::observe(const Options& options, KubeTime now) const {
  Observed observed;
  observed.job = &job;
  for (const auto& [name, object] : objects)
    (name.kind == "Pod" ? observed.pods : observed.objects).push_back(&object);
  // A name that was taken may be free again.
  for (const auto& [name, since] : foreign) {
    if (now < since + kRetryRefused) observed.foreign.insert(name);
  }
  observed.refused = refused;
  observed.expected = expected;
  observed.options = &options;
  return observed;
}

std::string JobRecord::known_uid(const ObjectName& name) const {
  const auto known = objects.find(name);
  return known == objects.end() ? std::string() : uid_of(known->second);
}

std::optional<KubeTime> JobRecord::next_trial(KubeTime now) const {
  std::optional<KubeTime> next;
  for (const auto& [name, since] : foreign) {
    const KubeTime end = since + kRetryRefused;
    if (now < end && (!next || end < *next)) next = end;
  }
  return next;
}

GuardedJob JobTable::find(const std::string& key) const {
  auto jobs = jobs_.lock();
  const auto found = jobs->find(key);
  return found == jobs->end() ? nullptr : found->second;
}

std::vector<std::string> JobTable::keys() const {
  std::vector<std::string> keys;
  auto jobs = jobs_.lock();
  for (const auto& [key, job] : *jobs) keys.push_back(key);
  return keys;
}

GuardedJob JobTable::make(const std::string& key) {
  auto jobs = jobs_.lock();
  GuardedJob& job = (*jobs)[key];
  if (job == nullptr) job = std::make_shared<Guarded<JobRecord>>();
  return job;
}

void JobTable::forget_if_empty(const std::string& key) {
  const GuardedJob job = find(key);
  if (job == nullptr) return;
  auto jobs = jobs_.lock();
  auto record = job->lock();
  if (record->is_forgotten || !record->job.is_null() || !record->objects.empty()) return;
  record->is_forgotten = true;
  jobs->erase(key);
}

void JobTable::keep(const Kind& kind, const std::string& key, Json object) {
  say_kind(kind, object);
  for (;;) {
    const GuardedJob job = make(key);
    auto record = job->lock();
    if (record->is_forgotten) continue;
    if (kind.is_job) return put_job(*record, std::move(object));
    const ObjectName name = name_of(kind, object);
    record->expected.tell(name, uid_of(object));
    trim(object);
    record->objects[name] = std::move(object);
    return;
  }
}

JobTable::Touched JobTable::changed(const Kind& kind, Json object) {
  std::string key = job_key(kind, object);
  if (key.empty()) return {};
  keep(kind, key, std::move(object));
  return {std::move(key)};
}

JobTable::Touched JobTable::gone(const Kind& kind, const Json& object) {
  const std::string key = job_key(kind, object);
  const GuardedJob job = find(key);
  if (job == nullptr) return {};
  if (kind.is_job) {
    forget_manifest(*job->lock());
  } else {
    auto record = job->lock();
    record->expected.tell(name_of(kind, object), uid_of(object));
    forget_object(*record, name_of(kind, object));
  }
  forget_if_empty(key);
  return {key};
}

void JobTable::drop_others(const Kind& kind, const std::string& key,
                           const std::set<std::string>& there) {
  const GuardedJob job = find(key);
  if (job == nullptr) return;
  auto record = job->lock();
  if (kind.is_job) {
    if (is_of(kind, record->job) && !there.contains(text_at(record->job, {"metadata", "name"})))
      forget_manifest(*record);
    return;
  }
  std::vector<ObjectName> lost;
  for (const auto& [name, object] : record->objects) {
    if (is_of(kind, object) && !there.contains(name.name)) lost.push_back(name);
  }
  for (const ObjectName& name : lost) forget_object(*record, name);
  record->expected.tell_list_of(kind.name);
}

JobTable::Touched JobTable::resynced(const Kind& kind, std::vector<Json> objects) {
  std::map<std::string, std::set<std::string>> there;  // Names by the job's key.
  for (Json& object : objects) {
    there[job_key(kind, object)].insert(text_at(object, {"metadata", "name"}));
    changed(kind, std::move(object));
  }
  Touched touched;
  for (const std::string& key : keys()) {
    drop_others(kind, key, there[key]);
    forget_if_empty(key);
    touched.insert(key);
  }
  return touched;
}

}  // namespace corro::kube
