// Preflight: what `corro doctor -H` does before a job. It commands the agents of the hosts as the
// launcher does, but starts no rank.
//
//   meeting    agents are started; each says what there is (SURVEY, EXAMINE) and what time it is
//   probing    which hosts reach each other, and by which addresses?
//   measuring  round trips and bandwidths, in rounds of links that share no end: all pairs of up to
//              16 hosts, of more hosts those 1, 2, 4, ... places apart
//   checking   what was slow is measured again, and in not all pairs what tells whose fault it is
//
// A host that fails in one of them is left out of the next; its failure is its finding.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/routes.h"
#include "launch/health.h"
#include "launch/network.h"
#include "launch/plan.h"

namespace corro::launch {

/// As the user gave them.
struct PreflightOptions {
  std::string hosts;     ///< -H; slots in it are of no account.
  std::string hostfile;  ///< --hostfile.
  std::string rsh;       ///< --rsh; "": ssh.
  std::string network;   ///< --network; "": any.
};

struct PreflightPlan {
  std::vector<JobHost> hosts;  ///< Their names, and which of them is this one.
  std::string rsh;             ///< Another remote shell; "": ssh.
  std::optional<Network> network;
  std::string corro;      ///< The program's path on other hosts.
  std::string version;    ///< Of corro.
  std::string directory;  ///< Where ranks would be started.
  std::string python;     ///< That would run them; "": none.
};

/// INVALID_ARGUMENT or NOT_FOUND for what the user has given. Pure.
[[nodiscard]] Result<PreflightPlan> plan_preflight(const PreflightOptions& options,
                                                   const PlanInputs& inputs,
                                                   const std::string& version);

/// Checks the hosts in about 5 s. `progress` hears what is going on, a line at a time. Fails only
/// if this host has no descriptors or processes left. To be called in a process without threads;
/// blocks SIGCHLD and ignores SIGPIPE.
[[nodiscard]] Result<Health> check_hosts(const PreflightPlan& plan,
                                         const std::function<void(const std::string&)>& progress);

/// How far a clock is ahead, by its answer `there` to a question sent at `asked` and answered at
/// `heard`: half of the round trip later than `asked`, give or take that half. Source: F. Cristian,
/// Probabilistic clock synchronization, 1989. Pure.
struct ClockReading {
  Duration ahead{}, error{};
};
[[nodiscard]] ClockReading read_clock(Duration asked, Duration there, Duration heard);

/// By which address `from` reaches each host: the one by which most hosts reach it, else the first
/// that `from` has reached; "" for none. `reached[from]` are the routes of that host. Pure.
[[nodiscard]] std::vector<LinkHealth> find_ways(
    const std::vector<std::vector<agent::Route>>& reached, const std::vector<HostHealth>& hosts);

}  // namespace corro::launch
