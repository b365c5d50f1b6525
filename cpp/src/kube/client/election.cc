#include "kube/client/election.h"

#include <utility>

namespace corro::kube {

Result<std::unique_ptr<Election>> Election::create(Client& client, LeaseOptions options) {
  CORRO_TRY(check(options));
  return std::unique_ptr<Election>(new Election(client, std::move(options)));
}

Election::Election(Client& client, LeaseOptions options)
    : client_(client), options_(std::move(options)) {}

bool Election::leads() const {
  return client_.surroundings().now().since_start.count() < leads_until_.load();
}

void Election::become(bool leads, std::string_view reason, const OnChange& on_change) {
  view_.leads = leads;
  if (!leads) leads_until_.store(0);
  on_change(leads, reason);
}

Status Election::read(const Until& until) {
  const std::string name = describe(type_, options_.key);
  Result<Json> lease = client_.get(type_, options_.key, until);
  const Time now = client_.surroundings().now();
  if (lease.status().code() == Code::kNotFound) {
    observe(view_, {}, now);
    return {};
  }
  if (!lease.ok()) return lease.status();
  CORRO_ASSIGN(LeaseRecord record, read_lease(*lease, name));
  observe(view_, std::move(record), now);
  return {};
}

Status Election::write(const LeaseDecision& decision, const Until& until) {
  const Time sent = client_.surroundings().now();
  const Json lease = write_lease(*decision.record, options_.key);
  Result<Json> taken = decision.action == LeaseAction::kCreate
                           ? client_.create(type_, options_.key, lease, until)
                           : client_.replace(type_, options_.key, lease, until);
  if (!taken.ok()) return taken.status();
  CORRO_ASSIGN(LeaseRecord record, read_lease(*taken, describe(type_, options_.key)));
  note_renewed(view_, std::move(record), sent, client_.surroundings().now());
  leads_until_.store(leads_until(view_, options_).since_start.count());
  return {};
}

/// Reads what others did, decides, and does it. A leader's requests end with its lead: it has to
/// say in time that it leads no more, however long the server hangs.
Status Election::step(const OnChange& on_change, const std::stop_token& stop) {
  const Surroundings& surroundings = client_.surroundings();
  const bool led = view_.leads;
  const Until until(
      stop, led ? leads_until(view_, options_) : surroundings.now() + options_.renew_within);
  if (!led) CORRO_TRY(read(until));
  const LeaseDecision decision = decide(view_, options_, surroundings.now(), surroundings.wall());
  if (decision.action == LeaseAction::kLost) {
    become(false, decision.reason, on_change);
    return {Code::kCancelled, decision.reason};
  }
  if (!decision.record) return {};
  Status status = write(decision, until);
  if (status.ok() && !led) become(true, decision.reason, on_change);
  // Either another was faster or the answer was lost; the record says which.
  if (!status.ok() && led) CORRO_TRY(read(until));
  return status;
}

/// What a stop has cut off may have been written: the record says whether the Lease is held.
void Election::release() {
  const std::stop_token none;
  const Until until(none, client_.surroundings().now() + options_.retry);
  while (read(until).ok() && view_.record && view_.record->holder == options_.me) {
    LeaseRecord record = *view_.record;
    record.holder.clear();
    record.duration = std::chrono::seconds(1);
    record.renewed = rfc3339_micro(client_.surroundings().wall());
    const Json lease = write_lease(record, options_.key);
    // Whether it was told or not, others take over: at once or after the duration.
    if (client_.replace(type_, options_.key, lease, until).status().code() != Code::kAborted) break;
  }
  view_ = {};
}

Status Election::run(const OnChange& on_change, const OnStep& on_step,
                     const std::stop_token& stop) {
  const Surroundings& surroundings = client_.surroundings();
  while (!stop.stop_requested()) {
    const Status status = step(on_change, stop);
    if (status.code() != Code::kCancelled) on_step(status);
    if (status.code() == Code::kPermissionDenied) {
      if (view_.leads) become(false, status.message(), on_change);
      return status;
    }
    // Candidates that read at the same moment would meet again and again.
    const double jitter = view_.leads ? 1.0 : 1.0 + 0.2 * surroundings.random();
    const auto delay =
        Duration(static_cast<int64_t>(static_cast<double>(options_.retry.count()) * jitter));
    if (surroundings.wait(delay, stop)) break;
  }
  if (view_.leads) become(false, "stopped", on_change);
  release();
  return {Code::kCancelled, describe(type_, options_.key) + ": election: stopped"};
}

}  // namespace corro::kube
