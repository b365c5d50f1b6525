// corro-coordinator: `corro coordinator`, and `corro agent --coordinator`.
#include <fmt/format.h>

#include "app/cli.h"
#include "app/program.h"
#include "app/subprograms.h"
#include "coordinator/coordinator.h"
#include "coordinator/dialling_agent.h"

namespace corro::app {
namespace {

int coordinator(const Request& request, const std::vector<std::string>& arguments) {
  const int status = coordinator::run_coordinator({.store = request.coordinator.store,
                                                   .listen = request.coordinator.listen,
                                                   .run = request.run,
                                                   .own_directory = own_directory(),
                                                   .version = CORRO_VERSION},
                                                  read_variables());
  if (status != coordinator::kStartAnew) return status;
  return become(own_path(), arguments[0], arguments);
}

int agent(const AgentCommand& command) {
  coordinator::DiallingAgentOptions options{.addresses = command.addresses,
                                            .host = command.host,
                                            .slots = command.slots,
                                            .version = CORRO_VERSION};
  if (command.patience) options.patience = *command.patience;
  return coordinator::run_dialling_agent(options, read_variables());
}

int run_program(const std::vector<std::string>& arguments) {
  const auto request = parse_coordinator_line(arguments);
  if (!request.ok()) {
    complain(request.status().message());
    return diagnosis::kUsageExit;
  }
  if (arguments[0] == "agent") return agent(request->agent);
  if (request->text.empty()) return coordinator(*request, arguments);
  fmt::print("{}", request->text);
  return 0;
}

}  // namespace
}  // namespace corro::app

int main(int argc, char** argv) {
  return corro::app::run_guarded(argc, argv, corro::app::run_program);
}
