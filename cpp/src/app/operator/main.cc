// corro-operator: `corro operator` on a machine with the whole wheel. Images have it in their one
// static program (app/pod).
#include "app/operator/operator_command.h"
#include "app/program.h"

int main(int argc, char** argv) {
  return corro::app::run_guarded(argc, argv, corro::app::operator_program);
}
