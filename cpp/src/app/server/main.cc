// corro-server: `corro server`.
#include "app/command_line.h"
#include "app/program.h"
#include "app/server/server_program.h"
#include "app/server_options.h"

namespace corro::app {
namespace {

int serve(const ServerCommand& /*command*/) {
  io::Fd stop = stop_on_sigterm();
  const auto environment = read_environment();
  if (!environment.ok()) {
    complain("corro server: " + environment.status().message());
    return diagnosis::kUsageExit;
  }
  return ServerProgram(*environment, std::move(stop), serve_tables).run();
}

int run_program(const std::vector<std::string>& arguments) {
  return answer(parse_server_line(arguments), serve);
}

}  // namespace
}  // namespace corro::app

int main(int argc, char** argv) {
  return corro::app::run_guarded(argc, argv, corro::app::run_program);
}
