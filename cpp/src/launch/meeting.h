// Meeting: before the first rank of a job on other hosts starts, their agents say what there is,
// and find out by which addresses the hosts reach each other.
//
//   surveying  with --sync the folder is read, a part of it with each advance(), and each agent
//              gets what is missing of it there;
//              SURVEY goes to each agent once it is there; each host is settled by its answer
//   probing    in a job of several hosts: PROBE was sent; who has reached whom?
//   done       the plan has an address for each host, and a port for torch's store
//
// Without I/O of its own but for the files of --sync: agents are told through Agents, and advance()
// looks at what came.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/interface_rule.h"
#include "launch/agents.h"
#include "launch/plan.h"
#include "launch/sync_reader.h"

namespace corro::launch {

/// Loop-confined. `plan` and `agents` outlive it.
class Meeting {
 public:
  /// Not needed, and done at once, where the only host is the launcher's and no other can come, or
  /// where the job runs.
  Meeting(LaunchPlan& plan, Agents& agents)
      : plan_(plan),
        agents_(agents),
        state_(!plan.resumed && (agents.size() > 1 || agents.any_remote() || plan.hosts_come())
                   ? State::kSurveying
                   : State::kDone) {}

  /// Reads the folder of --sync, and brings it to other hosts. To be called before greet().
  void bring(SyncReader folder) { reader_.emplace(std::move(folder)); }
  /// Its agent is there.
  void greet(const AgentLink& link);
  /// The same of one that comes when this is done.
  void welcome(const AgentLink& link);
  /// The same of one whose ranks run, and may have changed what --sync has brought.
  void greet_again(const AgentLink& link);
  /// What the agent has said of its host: fails where ranks could not run.
  [[nodiscard]] Status take_survey(AgentLink& link);
  /// What an agent says of its host. Fails where a file of --sync cannot be read any more.
  [[nodiscard]] Status hear(AgentLink& link, const agent::Message& message);
  /// How much of --sync's folder is still to be sent, for people; "": nothing.
  [[nodiscard]] std::string describe_sync() const;
  /// What goes on before that, where it takes long; "": nothing.
  [[nodiscard]] std::string describe_comparing() const;
  /// Goes on if all have answered. Fails with the host's name: something is missing there, it is
  /// another machine than the others, or it cannot be reached; or with a file of --sync.
  [[nodiscard]] Status advance();
  /// The host for which advance() has failed, if it is one alone.
  [[nodiscard]] std::optional<size_t> unfit() const { return unfit_; }
  /// advance() has something to do, whatever comes.
  [[nodiscard]] bool busy() const { return reader_.has_value(); }
  [[nodiscard]] bool done() const { return state_ == State::kDone; }
  /// A host that should have answered; null if all have, or get what --sync brings.
  [[nodiscard]] const AgentLink* silent() const;

 private:
  enum class State : uint8_t { kSurveying, kProbing, kDone };
  [[nodiscard]] bool has_answered(const AgentLink& link) const;
  void probe();
  void survey(const AgentLink& link);
  void announce(const AgentLink& link);

  LaunchPlan& plan_;
  Agents& agents_;
  State state_;
  std::optional<SyncReader> reader_;          ///< Until the folder of --sync is read.
  std::set<size_t> want_tree_;                ///< Hosts that were there before.
  std::optional<SyncTree> tree_;              ///< Once it is.
  std::map<size_t, agent::Lacking> lacking_;  ///< By host.
  std::optional<size_t> unfit_;
  std::set<size_t> synced_;  ///< Hosts that lack nothing.
};

/// FAILED_PRECONDITION if what runs on the host `name` does not run on another one. Pure.
[[nodiscard]] Status check_alike(const agent::Surveyed& survey, const agent::Surveyed& first,
                                 const std::string& name);

/// Gives each host that is the machine of another one an identity of its own, if the user means it
/// (`may_share`). FAILED_PRECONDITION names two that are one: their ranks would have the same
/// numbers on one machine, and so the same GPUs. Pure.
[[nodiscard]] Status tell_hosts_apart(const std::vector<AgentLink>& links, bool may_share,
                                      std::vector<JobHost>& hosts);

/// Leaves the addresses that the user wants: in --network, else of the interfaces that a variable
/// of others names. NOT_FOUND, with what the host has, if there is none. Pure.
[[nodiscard]] Status narrow_addresses(agent::Surveyed& survey, const std::string& network,
                                      const std::optional<InterfaceRule>& interfaces);

/// The first of the host's own addresses that all these others have reached; "": there is none.
/// Pure.
[[nodiscard]] std::string common_address(const AgentLink& to,
                                         const std::vector<const AgentLink*>& others);

/// By which address others reach each host: the first of its own that all of them have reached.
/// UNAVAILABLE names two hosts that do not reach each other. Pure.
[[nodiscard]] Result<std::vector<std::string>> choose_addresses(
    const std::vector<AgentLink>& links);

}  // namespace corro::launch
