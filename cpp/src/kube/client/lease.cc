#include "kube/client/lease.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace corro::kube {
namespace {

constexpr int64_t kMostSeconds = 3600;

int64_t seconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

/// An integer in [0, most] of the spec; 0 if it is missing.
Status read_integer(const Json& lease, std::string_view field, int64_t most, std::string_view name,
                    int64_t& into) {
  const Json* value = value_at(lease, {"spec", field});
  if (value == nullptr || value->is_null()) return {};
  const bool is_integer = value->is_number_integer() &&
                          !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
  into = is_integer ? value->get<int64_t>() : -1;
  if (into >= 0 && into <= most) return {};
  return {Code::kInvalidArgument,
          fmt::format("{}: spec.{}: must be an integer from 0 to {}", name, field, most)};
}

Status read_text(const Json& lease, std::initializer_list<std::string_view> path,
                 std::string_view name, std::string& into) {
  constexpr size_t kMost = 1024;
  const Json* value = value_at(lease, path);
  if (value == nullptr || value->is_null()) return {};
  if (value->is_string()) into = value->get<std::string>();
  const bool is_good =
      value->is_string() && into.size() <= kMost &&
      std::ranges::none_of(into, [](char c) { return static_cast<unsigned char>(c) < ' '; });
  if (is_good) return {};
  return {Code::kInvalidArgument, fmt::format("{}: {}.{}: must be a short line of text", name,
                                              *path.begin(), *(path.end() - 1))};
}

LeaseRecord mine(const LeaseView& view, const LeaseOptions& options, UnixTime wall) {
  LeaseRecord record = view.record.value_or(LeaseRecord{});
  const bool was_mine = record.holder == options.me;
  record.renewed = rfc3339_micro(wall);
  if (!was_mine || record.acquired.empty()) record.acquired = record.renewed;
  if (!was_mine && view.record) ++record.transitions;
  record.holder = options.me;
  record.duration = options.duration;
  return record;
}

LeaseDecision decide_as_leader(const LeaseView& view, const LeaseOptions& options, Time now,
                               UnixTime wall) {
  if (now >= leads_until(view, options)) {
    return {LeaseAction::kLost,
            fmt::format("no renewal was answered for {} s", seconds_of(options.renew_within)),
            {}};
  }
  if (!view.record) return {LeaseAction::kLost, "the Lease was deleted", {}};
  if (view.record->holder != options.me) {
    return {LeaseAction::kLost, fmt::format("taken over by \"{}\"", view.record->holder), {}};
  }
  if (now < view.renewed + options.retry) return {LeaseAction::kWait, "leads", {}};
  return {LeaseAction::kReplace, "renews", mine(view, options, wall)};
}

}  // namespace

Status check(const LeaseOptions& options) {
  const auto refuse = [](std::string_view what) {
    return Status(Code::kInvalidArgument, fmt::format("lease: {}", what));
  };
  if (options.key.space.empty() || options.key.name.empty()) return refuse("needs a name");
  if (options.me.empty()) return refuse("the candidate needs a name");
  const bool is_whole = options.duration % std::chrono::seconds(1) == Duration::zero();
  if (!is_whole || seconds_of(options.duration) < 1 ||
      seconds_of(options.duration) > kMostSeconds) {
    return refuse("the duration must be 1 to 3600 whole seconds");
  }
  if (options.retry <= Duration::zero() || options.retry >= options.renew_within ||
      options.renew_within >= options.duration) {
    return refuse("must be 0 < retry < renew_within < duration");
  }
  return {};
}

Result<LeaseRecord> read_lease(const Json& lease, std::string_view name) {
  LeaseRecord record;
  int64_t seconds = 0;
  const Json* spec = value_at(lease, {"spec"});
  if (spec != nullptr && !spec->is_null() && !spec->is_object()) {
    return Status(Code::kInvalidArgument, fmt::format("{}: spec: must be an object", name));
  }
  CORRO_TRY(read_text(lease, {"spec", "holderIdentity"}, name, record.holder));
  CORRO_TRY(read_text(lease, {"spec", "acquireTime"}, name, record.acquired));
  CORRO_TRY(read_text(lease, {"spec", "renewTime"}, name, record.renewed));
  CORRO_TRY(read_text(lease, {"metadata", "resourceVersion"}, name, record.version));
  CORRO_TRY(read_integer(lease, "leaseDurationSeconds", kMostSeconds, name, seconds));
  CORRO_TRY(read_integer(lease, "leaseTransitions", INT32_MAX, name, record.transitions));
  record.duration = std::chrono::seconds(seconds);
  return record;
}

Json write_lease(const LeaseRecord& record, const ObjectKey& key) {
  Json metadata = {{"name", key.name}, {"namespace", key.space}};
  if (!record.version.empty()) metadata["resourceVersion"] = record.version;
  Json spec = {{"holderIdentity", record.holder},
               {"leaseDurationSeconds", seconds_of(record.duration)},
               {"leaseTransitions", record.transitions}};
  if (!record.acquired.empty()) spec["acquireTime"] = record.acquired;
  if (!record.renewed.empty()) spec["renewTime"] = record.renewed;
  return {{"apiVersion", "coordination.k8s.io/v1"},
          {"kind", "Lease"},
          {"metadata", std::move(metadata)},
          {"spec", std::move(spec)}};
}

void observe(LeaseView& view, std::optional<LeaseRecord> record, Time now) {
  if (!view.was_read || view.record != record) view.changed = now;
  view.was_read = true;
  view.record = std::move(record);
}

void note_renewed(LeaseView& view, LeaseRecord record, Time sent, Time now) {
  observe(view, std::move(record), now);
  view.leads = true;
  view.renewed = sent;
}

Time leads_until(const LeaseView& view, const LeaseOptions& options) {
  return view.renewed + options.renew_within;
}

LeaseDecision decide(const LeaseView& view, const LeaseOptions& options, Time now, UnixTime wall) {
  if (view.leads) return decide_as_leader(view, options, now, wall);
  if (!view.was_read) return {LeaseAction::kRead, "has not read the Lease", {}};
  if (!view.record) return {LeaseAction::kCreate, "there is no Lease", mine(view, options, wall)};
  const LeaseRecord& record = *view.record;
  const auto take = [&](std::string reason) {
    return LeaseDecision{LeaseAction::kReplace, std::move(reason), mine(view, options, wall)};
  };
  if (record.holder.empty()) return take("the Lease was released");
  if (record.holder == options.me) return take("an answer to its own renewal was lost");
  const Duration unchanged = now - view.changed;
  const std::string held =
      fmt::format("held by \"{}\", unchanged for {} s", record.holder, seconds_of(unchanged));
  // A record without a duration (a foreign tool's) is waited out for this candidate's own.
  const Duration patience = record.duration > Duration::zero() ? record.duration : options.duration;
  if (unchanged >= patience) return take(held);
  return {LeaseAction::kWait, held, {}};
}

}  // namespace corro::kube
