// Meeting: before the first rank of a job on other hosts starts, their agents say what there is,
// and find out by which addresses the hosts reach each other.
//
//   surveying  SURVEY goes to each agent once it is there; each host is settled by its answer
//   probing    in a job of several hosts: PROBE was sent; who has reached whom?
//   done       the plan has an address for each host, and a port for torch's store
//
// Without I/O of its own: agents are told through Agents, and advance() looks at what came.
#pragma once

#include <vector>

#include "launch/agents.h"
#include "launch/plan.h"

namespace corro::launch {

/// Loop-confined. `plan` and `agents` outlive it.
class Meeting {
 public:
  /// Not needed, and done at once, where the only host is the launcher's.
  Meeting(LaunchPlan& plan, Agents& agents, const wire::Digest& job)
      : plan_(plan),
        agents_(agents),
        job_(job),
        state_(agents.size() > 1 || agents.any_remote() ? State::kSurveying : State::kDone) {}

  /// Its agent is there.
  void greet(const AgentLink& link);
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
  Agents& agents_;
  const wire::Digest job_;
  State state_;
};

/// By which address others reach each host: the first of its own that all of them have reached.
/// UNAVAILABLE names two hosts that do not reach each other. Pure.
[[nodiscard]] Result<std::vector<std::string>> choose_addresses(
    const std::vector<AgentLink>& links);

}  // namespace corro::launch
