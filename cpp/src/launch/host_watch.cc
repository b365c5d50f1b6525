#include "launch/host_watch.h"

#include <algorithm>

namespace corro::launch {

void HostWatch::look(JobCourse& course, Time now) {
  if (const auto answer = discovery_ ? discovery_->poll(now) : std::nullopt) {
    const std::string trouble = answer->ok() ? "" : answer->status().message();
    if (!trouble.empty() && trouble != no_hosts_) course.tell_of_host("", trouble);
    no_hosts_ = trouble;
    if (answer->ok()) take(**answer, course, now);
  }
  for (const Arrivals::Outcome& outcome : arrivals_.take(now)) {
    const JobHost& host = plan_.job.hosts[outcome.host];
    if (outcome.status.ok()) {
      course.tell_of_host(host.name, "is there");
      for (const std::string& piece : call_)
        agents_.tell(outcome.host, agent::Call{.bytes = piece});
      course.offer_host(outcome.host, host.name, host.slots(), now);
    } else {
      course.tell_of_host(host.name, "cannot be used: " + outcome.status.message());
    }
  }
}

Result<size_t> HostWatch::invite(const HostSlots& host) {
  const Time now = monotonic_now();
  if (arrivals_.may_invite(host.name, now)) return arrivals_.invite(host, now);
  return Status(Code::kFailedPrecondition, "it could not be used a short time ago");
}

void HostWatch::take(const std::vector<HostSlots>& listed, JobCourse& course, Time now) {
  for (const AgentLink& link : agents_.links()) {
    JobHost& host = plan_.job.hosts[link.host];
    if (link.gone || expects(link.host)) continue;
    const auto found =
        std::ranges::find_if(listed, [&](const HostSlots& one) { return is_same(host, one); });
    const int slots = found == listed.end() ? 0 : found->slots;
    host.spare = std::max(host.spare, slots - host.ranks);
    course.offer_host(link.host, host.name, slots, now);
  }
  for (const HostSlots& one : listed) {
    const auto is_known = [&](const AgentLink& link) {
      return !link.gone && is_same(plan_.job.hosts[link.host], one);
    };
    if (std::ranges::none_of(agents_.links(), is_known) && arrivals_.may_invite(one.name, now))
      arrivals_.invite(one, now);
  }
}

/// The launcher's own host has several names.
bool HostWatch::is_same(const JobHost& host, const HostSlots& listed) const {
  return host.name == listed.name || (is_own_host(host.name, plan_.machine.host) &&
                                      is_own_host(listed.name, plan_.machine.host));
}

}  // namespace corro::launch
