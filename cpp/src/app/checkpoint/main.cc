// corro-checkpoint: `corro checkpoint`.
#include "app/checkpoint/checkpoint_command.h"
#include "app/program.h"

namespace corro::app {
namespace {

int run_program(const std::vector<std::string>& arguments) {
  return answer(parse_checkpoint_line(arguments), checkpoint_command);
}

}  // namespace
}  // namespace corro::app

int main(int argc, char** argv) {
  return corro::app::run_guarded(argc, argv, corro::app::run_program);
}
