// The command line of the corro program.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launch/options.h"
#include "launch/preflight.h"

namespace corro::app {

enum class Action : uint8_t { kPrint, kRun, kDoctor, kPreflight, kStacks, kAgent, kSubprogram };

struct Request {
  Action action = Action::kPrint;
  std::string text;        ///< kPrint: for stdout (help, version, completion).
  std::string subprogram;  ///< kSubprogram: takes all arguments as they are, "corro-plan".
  launch::RunOptions run;
  std::vector<pid_t> doctor_pids;      ///< Empty: every process of this user.
  launch::PreflightOptions preflight;  ///< corro doctor -H.
  bool doctor_json = false;
  bool doctor_metrics = false;
  std::string stacks_job;  ///< Its id, or its launcher's pid; "": the only one.
};

/// Reads the arguments after the program's name. A mistake is INVALID_ARGUMENT in one line that
/// says what to do.
[[nodiscard]] Result<Request> parse_command_line(const std::vector<std::string>& arguments,
                                                 const std::string& version);

}  // namespace corro::app
