// corro-checkpoint: `corro checkpoint`.
#include <fmt/format.h>

#include "app/checkpoint/checkpoint_command.h"
#include "app/program.h"
#include "diagnosis/exit_status.h"

namespace corro::app {
namespace {

int run_program(const std::vector<std::string>& arguments) {
  const auto request = parse_checkpoint_line(arguments);
  if (!request.ok()) {
    complain(request.status().message());
    return diagnosis::kUsageExit;
  }
  if (request->text.empty()) return checkpoint_command(request->command);
  fmt::print("{}", request->text);
  return 0;
}

}  // namespace
}  // namespace corro::app

int main(int argc, char** argv) {
  return corro::app::run_guarded(argc, argv, corro::app::run_program);
}
