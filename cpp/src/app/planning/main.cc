// corro-plan: `corro plan` and `corro probe`.
#include <fmt/format.h>

#include "app/planning/planning.h"
#include "app/program.h"
#include "diagnosis/exit_status.h"

namespace corro::app {
namespace {

int run_program(const std::vector<std::string>& arguments) {
  const auto request = parse_plan_line(arguments);
  if (!request.ok()) {
    complain(request.status().message());
    return diagnosis::kUsageExit;
  }
  if (request->text.empty()) return plan_command(request->command, read_variables());
  fmt::print("{}", request->text);
  return 0;
}

}  // namespace
}  // namespace corro::app

int main(int argc, char** argv) {
  return corro::app::run_guarded(argc, argv, corro::app::run_program);
}
