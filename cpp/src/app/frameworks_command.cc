#include "app/commands.h"
#include "app/subprograms.h"
#include "launch/command.h"

namespace corro::app {

int frameworks_command(const Variables& environment) {
  const auto python = launch::find_python(environment, own_directory(), launch::real_files());
  if (!python.ok()) {
    complain("corro doctor: " + python.status().message());
    return 1;
  }
  return become(*python, "doctor", {"-m", "corro._front_ends"});
}

}  // namespace corro::app
