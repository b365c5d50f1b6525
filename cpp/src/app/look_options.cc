#include "app/look_options.h"

#include <CLI/CLI.hpp>

namespace corro::app {

void describe_looks(CLI::App& program, LookCommand& look) {
  CLI::App* status = program.add_subcommand("status", "Show what a running job does, once");
  CLI::App* top =
      program.add_subcommand("top", "Show what a running job does, again and again until it ends");
  CLI::App* stacks =
      program.add_subcommand("stacks", "Show the Python stacks of all ranks of a running job");
  for (CLI::App* command : {status, top, stacks})
    command
        ->add_option("job", look.job, "The job, or the pid of its corro run, if there are several")
        ->type_name("JOB");
  status->add_flag("--json", look.json, "Print JSON, as the dashboard has it");
}

}  // namespace corro::app
