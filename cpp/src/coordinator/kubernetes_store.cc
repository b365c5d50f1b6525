#include "coordinator/kubernetes_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "kube/client/kubeconfig.h"

namespace corro::coordinator {
namespace {

using coord::kLeaseMargin;
using coord::kLeaseTime;
using kube::Json;

constexpr Duration kMostCallTime = std::chrono::milliseconds(1500);
constexpr int kWriteAttempts = 3;
/// leaseTransitions has 32 bits.
constexpr uint64_t kMostTerm = INT32_MAX;

/// A field that holds fields, which it gets if it has none.
Json& fields_of(Json& object, const char* name) {
  Json& fields = object[name];
  if (!fields.is_object()) fields = Json::object();
  return fields;
}

}  // namespace

KubernetesStore::KubernetesStore(std::unique_ptr<kube::Client> client, const kube::ObjectKey& job)
    : where_(fmt::format("kubernetes {}/{}", job.space, job.name)),
      client_(std::move(client)),
      lease_object_(*client_, kube::kLeases, "Lease", {job.space, job.name + "-head"}),
      record_object_(*client_, kube::kConfigMaps, "ConfigMap", {job.space, job.name + "-record"}),
      progress_object_(*client_, kube::kConfigMaps, "ConfigMap",
                       {job.space, job.name + "-progress"}) {}

std::string KubernetesStore::wall_text() const {
  return rfc3339_micro(client_->surroundings().wall());
}

Result<KubernetesStore::Lease> KubernetesStore::note(Json object) {
  CORRO_ASSIGN(kube::LeaseRecord spec, kube::read_lease(object, where_));
  kube::observe(seen_, spec, now());
  std::string uid = kube::text_at(object, {"metadata", "uid"});
  return Lease{std::move(object), std::move(spec), std::move(uid)};
}

Result<KubernetesStore::Lease> KubernetesStore::read_lease(Time deadline) {
  CORRO_ASSIGN(Json object, lease_object_.get(deadline));
  return note(std::move(object));
}

Result<KubernetesStore::Lease> KubernetesStore::put_lease(const Lease& over, kube::LeaseRecord spec,
                                                          Time deadline) {
  spec.duration = kLeaseTime;
  spec.renewed = wall_text();
  Json object = over.object;
  fields_of(object, "spec").update(kube::write_lease(spec, {})["spec"]);
  CORRO_ASSIGN(Json written, lease_object_.put(object, deadline));
  return note(std::move(written));
}

bool KubernetesStore::is_led(const Lease& lease) const {
  if (lease.spec.holder.empty()) return false;
  const bool has_duration = lease.spec.duration > Duration::zero();
  return now() - seen_.changed < (has_duration ? lease.spec.duration : kLeaseTime);
}

Status KubernetesStore::check(const Lease& lease) {
  const bool is_mine = term_ != 0 && static_cast<uint64_t>(lease.spec.transitions) == term_ &&
                       lease.uid == lease_.uid && !lease.spec.holder.empty();
  if (is_mine) return {};
  forget_lead();
  return coord::not_leading(is_led(lease) ? lease.spec.holder : "", where_);
}

Result<std::optional<uint64_t>> KubernetesStore::try_lead(const std::string& name) {
  const Time begin = now();
  if (term_ != 0) {
    const Status renewed = renew_from(begin);
    if (renewed.ok()) return std::optional(term_);
    if (renewed.code() != Code::kAborted) return renewed;
  }
  CORRO_ASSIGN(const Lease there, read_lease(begin + kMostCallTime));
  if (is_led(there)) return std::optional<uint64_t>();
  return take_lead(name, there, begin);
}

Result<std::optional<uint64_t>> KubernetesStore::take_lead(const std::string& name,
                                                           const Lease& there, Time begin) {
  const Time deadline = begin + kMostCallTime;
  CORRO_ASSIGN(record_map_, record_object_.get(deadline));
  CORRO_ASSIGN(const uint64_t written, term_in(record_map_));
  const uint64_t last = std::max(written, static_cast<uint64_t>(there.spec.transitions));
  kube::LeaseRecord spec;
  spec.holder = name;
  spec.acquired = wall_text();
  spec.transitions = static_cast<int64_t>(last) + 1;
  Result<Lease> taken = put_lease(there, spec, deadline);
  if (taken.status().code() == Code::kAborted) return std::optional<uint64_t>();
  if (!taken.ok()) return taken.status();
  lease_ = std::move(*taken);
  term_ = last + 1;
  until_ = begin + kLeaseTime - kLeaseMargin;
  const Status claimed = put_record(std::nullopt, deadline);
  if (claimed.ok()) return std::optional(term_);
  resign_until(deadline);
  if (claimed.code() == Code::kAborted) return std::optional<uint64_t>();
  return claimed;
}

Result<std::string> KubernetesStore::leader() {
  CORRO_ASSIGN(const Lease lease, read_lease(now() + kMostCallTime));
  return is_led(lease) ? lease.spec.holder : std::string();
}

Result<std::string> KubernetesStore::read() {
  CORRO_ASSIGN(const Json record_map, record_object_.get(now() + kMostCallTime));
  std::optional<std::string> record =
      kube::decode_base64(kube::text_at(record_map, {"binaryData", "record"}));
  if (!record) return Status(Code::kDataLoss, where_ + ": the record is no base64");
  return *std::move(record);
}

Status KubernetesStore::write(const std::string& record) {
  const Time begin = now();
  CORRO_TRY(coord::check_size(record, where_));
  // The ConfigMap does not say when a lead has ended that nobody else has taken.
  if (begin >= until_) CORRO_TRY(renew_from(begin));
  return put_record(record, begin + kMostCallTime);
}

Status KubernetesStore::put_record(const std::optional<std::string>& record, Time deadline) {
  for (int attempt = 0; attempt < kWriteAttempts; ++attempt) {
    Json changed = record_map_;
    fields_of(changed, "data")["term"] = std::to_string(term_);
    fields_of(changed, "data")["writes"] = std::to_string(++writes_);
    if (record) fields_of(changed, "binaryData")["record"] = kube::encode_base64(*record);
    Result<Json> written = record_object_.put(changed, deadline);
    if (written.ok()) {
      record_map_ = std::move(*written);
      return {};
    }
    if (written.status().code() != Code::kAborted) return written.status();
    CORRO_TRY(reread_record(deadline));
  }
  return {Code::kUnavailable, where_ + ": the record changes while it is written"};
}

Status KubernetesStore::reread_record(Time deadline) {
  // In this order: whoever takes the Lease after it was read writes a newer ConfigMap.
  CORRO_ASSIGN(Json record_map, record_object_.get(deadline));
  CORRO_ASSIGN(const Lease lease, read_lease(deadline));
  CORRO_TRY(check(lease));
  CORRO_ASSIGN(const uint64_t term, term_in(record_map));
  if (term > term_) {
    forget_lead();
    return coord::not_leading(fmt::format("one of term {}", term), where_);
  }
  record_map_ = std::move(record_map);
  return {};
}

Result<uint64_t> KubernetesStore::term_in(const Json& record_map) const {
  const std::string text = kube::text_at(record_map, {"data", "term"});
  if (text.empty()) return uint64_t{0};
  uint64_t term = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, term);
  if (read.ec == std::errc() && read.ptr == end && term < kMostTerm) return term;
  return Status(Code::kDataLoss, where_ + ": data.term of the record is no term");
}

Status KubernetesStore::renew() { return renew_from(now()); }

Status KubernetesStore::renew_from(Time begin) {
  const Time deadline = begin + kMostCallTime;
  if (term_ == 0) {
    const Result<Lease> there = read_lease(deadline);
    return there.ok() ? check(*there) : coord::not_leading("it is not known who", where_);
  }
  const std::string me = lease_.spec.holder;  // A copy, since lease_ may change.
  CORRO_TRY(put_own_lease(me, deadline));
  until_ = begin + kLeaseTime - kLeaseMargin;
  return {};
}

Status KubernetesStore::put_own_lease(const std::string& holder, Time deadline) {
  for (int attempt = 0; attempt < kWriteAttempts; ++attempt) {
    kube::LeaseRecord spec = lease_.spec;
    spec.holder = holder;
    Result<Lease> written = put_lease(lease_, spec, deadline);
    if (written.ok()) {
      lease_ = std::move(*written);
      return {};
    }
    if (written.status().code() != Code::kAborted) return written.status();
    // Such as after a renewal whose answer was lost.
    CORRO_ASSIGN(Lease there, read_lease(deadline));
    CORRO_TRY(check(there));
    lease_ = std::move(there);
  }
  return {Code::kUnavailable, where_ + ": the Lease changes while it is written"};
}

void KubernetesStore::show(const std::string& progress) {
  const Time deadline = now() + kMostCallTime;
  Result<Json> there = progress_object_.get(deadline);
  if (!there.ok()) return;
  fields_of(*there, "data")["progress"] = progress;
  (void)progress_object_.put(*there, deadline);
}

void KubernetesStore::resign() { resign_until(now() + kMostCallTime); }

void KubernetesStore::resign_until(Time deadline) {
  if (term_ == 0) return;
  (void)put_own_lease("", deadline);
  forget_lead();
}

void KubernetesStore::forget_lead() {
  term_ = 0;
  until_ = Time{};
}

}  // namespace corro::coordinator
