// corro: starts and watches training jobs. `corro help` says more.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "app/cli.h"
#include "app/commands.h"
#include "diagnosis/exit_status.h"

namespace corro::app {
namespace {

int run_program(const std::vector<std::string>& arguments) {
  const auto request = parse_command_line(arguments, CORRO_VERSION);
  if (!request.ok()) {
    complain(request.status().message());
    return diagnosis::kUsageExit;
  }
  switch (request->action) {
    case Action::kRun:
      return run_command(request->run, read_variables());
    case Action::kDoctor:
      return doctor_command(*request);
    case Action::kPreflight:
      return preflight_command(*request, read_variables());
    case Action::kStacks:
      return stacks_command(request->stacks_job);
    case Action::kPlan:
      return plan_command(request->plan, read_variables());
    case Action::kOperator:
      return operator_command(request->cluster_operator, read_variables());
    case Action::kAgent:
      return agent_command();
    case Action::kPrint:
      break;
  }
  fmt::print("{}", request->text);
  return 0;
}

}  // namespace

void complain(const std::string& line) { fmt::print(stderr, "{}\n", line); }

}  // namespace corro::app

int main(int argc, char** argv) {
  try {
    return corro::app::run_program({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    corro::app::complain(std::string("corro: a defect of corro itself: ") + error.what());
    return 70;  // EX_SOFTWARE
  }
}
