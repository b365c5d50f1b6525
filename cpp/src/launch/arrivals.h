// Arrivals: hosts that come while a job runs, until ranks can be started on them.
//
//   starting   the agent is started, by the remote shell
//   surveying  it is there: --sync brings its folder, and the agent says what there is
//   probing    the job's other hosts dial its addresses: by which one do all of them reach it?
//   there      the plan has its address; processes can be started on it
//   refused    it cannot be used, and why: its agent is ended. Whoever lists it again later is
//              heard, longer after each failure
//
// The job goes on meanwhile, and whatever becomes of such a host.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/agents.h"
#include "launch/meeting.h"
#include "launch/plan.h"

namespace corro::launch {

/// Loop-confined. All three outlive it.
class Arrivals {
 public:
  /// What has become of a host.
  struct Outcome {
    size_t host = 0;
    Status status;  ///< OK: it is there.
  };

  Arrivals(LaunchPlan& plan, Agents& agents, Meeting& meeting)
      : plan_(plan), agents_(agents), meeting_(meeting) {}

  /// Starts the agent of a host that the job has not had; returns its number.
  size_t invite(const HostSlots& host, Time now);
  /// Whether it comes: what is said of it, and its loss, is no matter of the job's yet.
  [[nodiscard]] bool expects(size_t host) const { return coming_.contains(host); }
  /// It may be invited: it has not failed a short time ago.
  [[nodiscard]] bool may_invite(const std::string& name, Time now) const;
  /// Its agent has said HELLO.
  void greet(const AgentLink& link);
  /// A host of this name could not be used: it is not invited for a while, longer each time.
  void put_off(const std::string& name, Time now);
  /// It cannot be used.
  void refuse(size_t host, const std::string& why, Time now);
  /// Goes on, and says what was decided.
  [[nodiscard]] std::vector<Outcome> take(Time now);
  /// When take() has something to do, if nothing is heard before.
  [[nodiscard]] Time due() const;

 private:
  struct Coming {
    Time until{};
    bool probed = false;
  };
  struct Failed {
    int often = 0;
    Time free_at{};
  };

  [[nodiscard]] Status advance(size_t host, Coming& coming, Time now);
  void probe(const AgentLink& link);
  [[nodiscard]] std::vector<AgentLink*> others(size_t host) const;

  LaunchPlan& plan_;
  Agents& agents_;
  Meeting& meeting_;
  std::map<size_t, Coming> coming_;       ///< By host.
  std::map<std::string, Failed> failed_;  ///< By name.
  std::vector<Outcome> outcomes_;
};

/// By which address all others reach a host: the first of its own that all of them have reached.
/// UNAVAILABLE names one that does not. Pure.
[[nodiscard]] Result<std::string> choose_address(const AgentLink& link,
                                                 const std::vector<const AgentLink*>& others);

}  // namespace corro::launch
