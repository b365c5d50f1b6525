// Meeting: before the first rank of a job on other hosts starts, their agents say what there is,
// and find out by which addresses the hosts reach each other.
//
//   surveying  SURVEY was sent; each host is settled by its answer
//   probing    in a job of several hosts: PROBE was sent; who has reached whom?
//   done       the plan has an address for each host, and a port for torch's store
//
// Without I/O of its own: agents are told through their links, and advance() looks at what came.
#pragma once

#include <vector>

#include "launch/agent_link.h"
#include "launch/plan.h"

namespace corro::launch {

/// Loop-confined. `plan` and `links` outlive it.
class Meeting {
 public:
  Meeting(LaunchPlan& plan, std::vector<AgentLink>& links) : plan_(plan), links_(links) {}

  /// Sends SURVEY. Not needed, and done at once, where the only host is the launcher's.
  void begin(const wire::Digest& job);
  /// Goes on if all have answered. Fails with the host's name: something is missing there, it is
  /// another machine than the others, or it cannot be reached.
  [[nodiscard]] Status advance();
  [[nodiscard]] bool done() const { return state_ == State::kDone; }
  /// A host that has not answered yet; null if all have.
  [[nodiscard]] const AgentLink* silent() const;

 private:
  enum class State : uint8_t { kSurveying, kProbing, kDone };
  [[nodiscard]] Status take_survey(AgentLink& link);
  [[nodiscard]] Status narrow(std::vector<std::string>& addresses) const;
  void probe();

  LaunchPlan& plan_;
  std::vector<AgentLink>& links_;
  wire::Digest job_{};
  State state_ = State::kDone;
};

/// By which address others reach each host: the first of its own that all of them have reached.
/// UNAVAILABLE names two hosts that do not reach each other. Pure.
[[nodiscard]] Result<std::vector<std::string>> choose_addresses(
    const std::vector<AgentLink>& links);

}  // namespace corro::launch
