// corro-plan: `corro plan` and `corro probe`.
#include "app/planning/planning.h"
#include "app/program.h"

namespace corro::app {
namespace {

int run_program(const std::vector<std::string>& arguments) {
  return answer(parse_plan_line(arguments),
                [](const PlanCommand& command) { return plan_command(command, read_variables()); });
}

}  // namespace
}  // namespace corro::app

int main(int argc, char** argv) {
  return corro::app::run_guarded(argc, argv, corro::app::run_program);
}
