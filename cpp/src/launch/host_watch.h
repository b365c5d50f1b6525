// HostWatch: hosts that come and go while a job runs, by --host-discovery, or since their agents
// dial. Those that come are brought to where ranks can be started on them; those that go are
// offered no more.
#pragma once

#include <string>
#include <vector>

#include "launch/agents.h"
#include "launch/arrivals.h"
#include "launch/discovery.h"
#include "launch/job_course.h"
#include "launch/meeting.h"
#include "launch/plan.h"

namespace corro::launch {

/// Loop-confined. All three outlive it.
class HostWatch {
 public:
  /// `call`: the pieces of what corro.run() has its ranks do, for hosts that come.
  HostWatch(LaunchPlan& plan, Agents& agents, Meeting& meeting, std::vector<std::string> call)
      : plan_(plan), agents_(agents), arrivals_(plan, agents, meeting), call_(std::move(call)) {
    if (!plan.options.discovery.empty())
      discovery_.emplace(plan.options.discovery, plan.machine.host, plan.mask);
    for (const std::string& name : plan.put_off) arrivals_.put_off(name, monotonic_now());
  }

  /// What has become of the hosts goes to the course.
  void look(JobCourse& course, Time now);
  /// When look() has something to do, if nothing is heard before.
  [[nodiscard]] Time due() const {
    return std::min(discovery_ ? discovery_->due() : Time::never(), arrivals_.due());
  }
  /// A host whose agent has dialled gets the next number. FAILED_PRECONDITION: it has failed a short
  /// time ago.
  Result<size_t> invite(const HostSlots& host);

  /// A host that the job does not have yet: what is said of it is no matter of the job's.
  [[nodiscard]] bool expects(size_t host) const { return arrivals_.expects(host); }
  void greet(const AgentLink& link) { arrivals_.greet(link); }
  /// It cannot be used.
  void refuse(size_t host, const std::string& why, Time now) { arrivals_.refuse(host, why, now); }

 private:
  void take(const std::vector<HostSlots>& listed, JobCourse& course, Time now);
  [[nodiscard]] bool is_same(const JobHost& host, const HostSlots& listed) const;

  LaunchPlan& plan_;
  Agents& agents_;
  std::optional<HostDiscovery> discovery_;  ///< None: agents dial.
  Arrivals arrivals_;
  std::vector<std::string> call_;
  std::string no_hosts_;  ///< Why the last answer was none; "": it was one.
};

}  // namespace corro::launch
