// The command line of the corro program.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "app/cluster_options.h"
#include "app/look_options.h"
#include "launch/options.h"
#include "launch/past_job.h"
#include "launch/preflight.h"

namespace corro::app {

enum class Action : uint8_t {
  kPrint,
  kRun,
  kDoctor,
  kPreflight,
  kFrameworks,
  kStacks,
  kServers,
  kTrace,
  kDash,
  kStatus,
  kTop,
  kAgent,
  kSubprogram
};

struct CoordinatorCommand {
  std::string store;
  std::string listen;
};
struct AgentCommand {
  std::vector<std::string> addresses;
  std::string host;                                 ///< "": as the system calls it.
  int slots = 0;                                    ///< 0: as many as the machine is good for.
  std::optional<Duration> patience = std::nullopt;  ///< None: as it is by default.
};

struct Request {
  Action action = Action::kPrint;
  std::string text;        ///< kPrint: for stdout (help, version, completion).
  std::string subprogram;  ///< kSubprogram: takes all arguments as they are, "corro-plan".
  launch::RunOptions run;  ///< Of `corro coordinator`, too.
  ClusterRunOptions cluster;
  JobsCommand jobs;
  CoordinatorCommand coordinator;
  AgentCommand agent;
  std::vector<pid_t> doctor_pids;      ///< Empty: every process of this user.
  launch::PreflightOptions preflight;  ///< corro doctor -H.
  bool doctor_json = false;
  bool doctor_metrics = false;
  LookCommand look;
  launch::PastJobOptions dash;
};

/// Reads the arguments after the program's name. A mistake is INVALID_ARGUMENT in one line that
/// says what to do.
[[nodiscard]] Result<Request> parse_command_line(const std::vector<std::string>& arguments,
                                                 const std::string& version);

/// The same for corro-jobs: `run --on`, `jobs`, `logs`, `stop`, `scale` or `autoscale`.
[[nodiscard]] Result<Request> parse_jobs_line(const std::vector<std::string>& arguments);

/// The same for corro-coordinator: `coordinator` and its options, or `agent --coordinator`.
[[nodiscard]] Result<Request> parse_coordinator_line(const std::vector<std::string>& arguments);

}  // namespace corro::app
