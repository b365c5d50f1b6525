// corro: starts and watches training jobs. `corro help` says more.
#include <fmt/format.h>

#include "app/commands.h"
#include "app/subprograms.h"
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
    case Action::kFrameworks:
      return frameworks_command(read_variables());
    case Action::kStacks:
      return stacks_command(request->look.job);
    case Action::kServers:
      return servers_command(request->look);
    case Action::kTrace:
      return trace_command(request->look);
    case Action::kStatus:
      return status_command(request->look.job, request->look.json, read_variables());
    case Action::kTop:
      return top_command(request->look.job, read_variables());
    case Action::kDash:
      return dash_command(request->dash);
    case Action::kAgent:
      return agent_command();
    case Action::kSubprogram:
      return become(path_of(request->subprogram, own_directory()), arguments[0], arguments);
    case Action::kPrint:
      break;
  }
  fmt::print("{}", request->text);
  return 0;
}

}  // namespace
}  // namespace corro::app

int main(int argc, char** argv) {
  return corro::app::run_guarded(argc, argv, corro::app::run_program);
}
