#include "coordinator/etcd_store.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "kube/client/kubeconfig.h"

namespace corro::coordinator {
namespace {

using coord::kLeaseMargin;
using coord::kLeaseTime;
using kube::Json;

constexpr Duration kCallTime = std::chrono::milliseconds(1500);

/// A number that the gateway wrote as a text; 0 where it wrote none.
uint64_t number_at(const Json& json, std::string_view field) {
  const std::string text = kube::text_at(json, {field});
  uint64_t number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Decodes the value of a key; "" for none, since the gateway leaves out what is empty.
std::string value_of_key(const Json& pair) {
  return kube::decode_base64(kube::text_at(pair, {"value"})).value_or("");
}

/// The first key of a range's answer, or null.
const Json* first_pair(const Json& range) {
  const Json* pairs = kube::value_at(range, {"kvs"});
  const bool is_there = pairs != nullptr && pairs->is_array() && !pairs->empty();
  return is_there ? &pairs->front() : nullptr;
}

/// The answer to a step of a transaction, a range.
Json range_in(const Json& transaction, size_t step) {
  const Json* steps = kube::value_at(transaction, {"responses"});
  if (steps == nullptr || !steps->is_array() || steps->size() <= step) return {};
  const Json* range = kube::value_at((*steps)[step], {"response_range"});
  return range != nullptr ? *range : Json();
}

bool has_succeeded(const Json& transaction) {
  const Json* succeeded = kube::value_at(transaction, {"succeeded"});
  return succeeded != nullptr && succeeded->is_boolean() && succeeded->get<bool>();
}

/// "Only if the key was made in this revision"; 0: if it is not there.
Json made_in(const std::string& key, uint64_t revision) {
  return {{"key", key},
          {"target", "CREATE"},
          {"result", "EQUAL"},
          {"create_revision", std::to_string(revision)}};
}

/// "Only if the key was changed last in this revision"; 0: if it is not there.
Json changed_in(const std::string& key, uint64_t revision) {
  return {{"key", key},
          {"target", "MOD"},
          {"result", "EQUAL"},
          {"mod_revision", std::to_string(revision)}};
}

}  // namespace

EtcdStore::EtcdStore(EtcdClient client, std::string prefix, std::function<Time()> now)
    : client_(std::move(client)),
      prefix_(std::move(prefix)),
      leader_key_(kube::encode_base64(prefix_ + "/leader")),
      record_key_(kube::encode_base64(prefix_ + "/record")),
      now_(std::move(now)) {}

Time EtcdStore::call_end() const { return now_() + kCallTime; }

EtcdStore::Leader EtcdStore::leader_in(const Json& range) {
  const Json* pair = first_pair(range);
  if (pair == nullptr) return {};
  return {number_at(*pair, "create_revision"), value_of_key(*pair),
          kube::text_at(*pair, {"lease"})};
}

Result<EtcdStore::Leader> EtcdStore::look(Time deadline) {
  CORRO_ASSIGN(const Json range, client_.call("kv/range", {{"key", leader_key_}}, deadline));
  return leader_in(range);
}

Result<EtcdStore::Leader> EtcdStore::put_leader(const std::string& name, const std::string& lease,
                                                Time deadline) {
  const Json range = {{"request_range", {{"key", leader_key_}}}};
  const Json put = {
      {"request_put",
       {{"key", leader_key_}, {"value", kube::encode_base64(name)}, {"lease", lease}}}};
  const Json transaction = {{"compare", Json::array({made_in(leader_key_, 0)})},
                            {"success", Json::array({put, range})},
                            {"failure", Json::array({range})}};
  CORRO_ASSIGN(const Json answer, client_.call("kv/txn", transaction, deadline));
  return leader_in(range_in(answer, has_succeeded(answer) ? 1 : 0));
}

Result<std::optional<uint64_t>> EtcdStore::try_lead(const std::string& name) {
  const Time begin = now_();
  const Time deadline = begin + kCallTime;
  CORRO_ASSIGN(const Leader there, look(deadline));
  if (term_ != 0 && check(there).ok()) return std::optional(term_);
  if (there.term != 0) return std::optional<uint64_t>();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(kLeaseTime).count();
  CORRO_ASSIGN(const Json granted,
               client_.call("lease/grant", {{"TTL", std::to_string(seconds)}}, deadline));
  const std::string lease = kube::text_at(granted, {"ID"});
  CORRO_ASSIGN(const Leader leader, put_leader(name, lease, deadline));
  // Not whether the transaction succeeded: one that was made twice did so the first time.
  if (leader.term == 0 || leader.lease != lease) {
    (void)client_.call("lease/revoke", {{"ID", lease}}, deadline);
    return std::optional<uint64_t>();
  }
  term_ = leader.term;
  lease_ = lease;
  until_ = begin + kLeaseTime - kLeaseMargin;
  return std::optional(term_);
}

Result<std::string> EtcdStore::leader() {
  CORRO_ASSIGN(const Leader leader, look(call_end()));
  return leader.name;
}

Result<std::string> EtcdStore::read() {
  CORRO_ASSIGN(const Json range, client_.call("kv/range", {{"key", record_key_}}, call_end()));
  const Json* pair = first_pair(range);
  return pair != nullptr ? value_of_key(*pair) : std::string();
}

Status EtcdStore::check(const Leader& leader) {
  if (term_ != 0 && leader.term == term_) return {};
  forget_lead();
  return coord::not_leading(leader.name, "etcd " + prefix_);
}

Status EtcdStore::write(const std::string& record) {
  constexpr int kAttempts = 3;
  const Time deadline = call_end();
  CORRO_TRY(coord::check_size(record, "etcd " + prefix_));
  if (term_ == 0) {  // As a revision it would mean: if nobody leads.
    CORRO_ASSIGN(const Leader leader, look(deadline));
    return check(leader);
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    CORRO_ASSIGN(const bool is_written, write_over(record, deadline));
    if (is_written) return {};
  }
  return {Code::kUnavailable,
          fmt::format("etcd {}: the record changes while it is written", prefix_)};
}

Result<bool> EtcdStore::write_over(const std::string& record, Time deadline) {
  const Json put = {
      {"request_put", {{"key", record_key_}, {"value", kube::encode_base64(record)}}}};
  const Json leader = {{"request_range", {{"key", leader_key_}}}};
  const Json written = {{"request_range", {{"key", record_key_}, {"keys_only", true}}}};
  const Json compare =
      Json::array({made_in(leader_key_, term_), changed_in(record_key_, record_revision_)});
  const Json transaction = {{"compare", compare},
                            {"success", Json::array({put})},
                            {"failure", Json::array({leader, written})}};
  CORRO_ASSIGN(const Json answer, client_.call("kv/txn", transaction, deadline));
  if (has_succeeded(answer)) {
    const Json* header = kube::value_at(answer, {"header"});
    record_revision_ = header != nullptr ? number_at(*header, "revision") : 0;
    return true;
  }
  CORRO_TRY(check(leader_in(range_in(answer, 0))));
  const Json range = range_in(answer, 1);
  const Json* pair = first_pair(range);
  record_revision_ = pair != nullptr ? number_at(*pair, "mod_revision") : 0;
  return false;
}

Status EtcdStore::renew() {
  const Time begin = now_();
  const Time deadline = begin + kCallTime;
  bool is_alive = false;
  if (term_ != 0) {
    CORRO_ASSIGN(const Json kept, client_.call("lease/keepalive", {{"ID", lease_}}, deadline));
    const Json* result = kube::value_at(kept, {"result"});
    is_alive = result != nullptr && number_at(*result, "TTL") > 0;
  }
  if (!is_alive) forget_lead();
  // The lease may live on without its key, if somebody has removed that. And an etcd that is cut off
  // from the others may have kept the lease alive for itself: such a one cannot answer this.
  const Result<Leader> leader = look(deadline);
  if (!leader.ok() && is_alive) return leader.status();
  CORRO_TRY(check(leader.ok() ? *leader : Leader{.name = "it is not known who"}));
  until_ = begin + kLeaseTime - kLeaseMargin;
  return {};
}

void EtcdStore::resign() {
  if (term_ == 0) return;
  const std::string lease = lease_;
  forget_lead();
  (void)client_.call("lease/revoke", {{"ID", lease}}, call_end());
}

void EtcdStore::forget_lead() {
  term_ = 0;
  lease_.clear();
  until_ = Time{};
}

}  // namespace corro::coordinator
