// Everything that is decided before the first process starts: --dry-run prints it, the launcher
// carries it out.
#pragma once

#include <signal.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/machine.h"
#include "base/status.h"
#include "launch/binding.h"
#include "launch/command.h"
#include "launch/hosts.h"
#include "launch/job_record.h"
#include "launch/options.h"
#include "launch/worker_env.h"

namespace corro::launch {

struct LaunchPlan {
  RunOptions options;
  agent::Machine machine;
  Command command;
  JobFacts job;
  Variables inherited;                ///< As the launcher found it.
  Variables base;                     ///< The same with --env applied.
  std::vector<Binding> bindings;      ///< By host.
  std::string corro;                  ///< The program's path, for other hosts.
  std::string server;                 ///< That of the table servers' program; "": there are none.
  std::string directory;              ///< Where the ranks are started.
  std::string sync;                   ///< --sync's folder, absolute; "": none.
  std::string hosts_source;           ///< Who has given the hosts; "" if the user said which.
  std::string unknown_hosts;          ///< A line about a scheduler's hosts that are not used.
  std::string ranks_reason;           ///< Why so many ranks; "" if the user said how many.
  std::vector<std::string> misspelt;  ///< Lines about variables, of find_misspelt().
  sigset_t mask{};                    ///< Of programs that the launcher starts beside ranks.
  std::vector<std::string> put_off;   ///< Hosts that could not be used at the start.
  bool dialled = false;               ///< Agents dial: the launcher is a standalone coordinator.
  bool resumed = false;               ///< It goes on with a job that another one has led.

  /// Hosts may come while the job runs.
  [[nodiscard]] bool hosts_come() const { return dialled || !options.discovery.empty(); }
};

/// What the plan needs from outside, so that making it is pure.
struct PlanInputs {
  Variables environment;
  agent::Machine machine;
  FileFacts files;
  std::string own_directory;  ///< Of the corro program.
  TextReader read_hostfile;
  /// Hosts of --host-discovery, once there are enough slots.
  std::function<Result<std::vector<HostSlots>>(const std::string& command, int slots,
                                               Duration patience)>
      discover = nullptr;
  std::vector<HostSlots> dialled = {};  ///< Hosts whose agents have dialled.
  bool hosts_have_program = false;    ///< Their agents know what to run; the options name nothing.
  const JobRecord* record = nullptr;  ///< Of a job that goes on; borrowed.
  std::string job_id;
  std::string time;  ///< "20261121-111249", for the log directory.
  int master_port = 0;
};

/// Every failure is a mistake on the command line or a program that is not there: exit status 2.
[[nodiscard]] Result<LaunchPlan> make_plan(const RunOptions& options, const PlanInputs& inputs);

/// The same job on its other hosts, where --host-discovery may name these, which cannot be used, again
/// later. None: too few slots are left, or one is the launcher's own. `unusable`: why, by host. Pure.
[[nodiscard]] std::optional<LaunchPlan> plan_without(const LaunchPlan& plan,
                                                     const std::map<size_t, std::string>& unusable);

/// What is decided of a host once its agent says what there is: threads and processors of its
/// ranks. FAILED_PRECONDITION if they do not fit.
[[nodiscard]] Status settle_host(LaunchPlan& plan, size_t host, const agent::Machine& machine);

/// The whole environment of a rank; on another host beside what there is.
[[nodiscard]] Variables environment_of(const LaunchPlan& plan, const Seat& seat);

/// The same of a table server, by its number.
[[nodiscard]] Variables environment_of_server(const LaunchPlan& plan, int server, size_t host);

/// What is said before the first rank starts: "" without --verbose if the user said how many.
[[nodiscard]] std::string announce_plan(const LaunchPlan& plan);

/// What --dry-run prints: hosts, ranks, bindings, the command and the variables.
[[nodiscard]] std::string describe_plan(const LaunchPlan& plan);

}  // namespace corro::launch
