#include "app/look_options.h"

#include <CLI/CLI.hpp>

#include "app/command_line.h"

namespace corro::app {

void describe_looks(CLI::App& program, LookCommand& look) {
  CLI::App* status = program.add_subcommand("status", "Show what a running job does, once");
  CLI::App* top =
      program.add_subcommand("top", "Show what a running job does, again and again until it ends");
  CLI::App* stacks =
      program.add_subcommand("stacks", "Show the Python stacks of all ranks of a running job");
  CLI::App* trace = program.add_subcommand(
      "trace", "Write what all ranks of a running job did in their last steps, for Perfetto");
  CLI::App* servers =
      program.add_subcommand("servers", "Start table servers of a running job, or let one go");
  for (CLI::App* command : {status, top, stacks, trace, servers})
    command
        ->add_option("job", look.job, "The job, or the pid of its corro run, if there are several")
        ->type_name("JOB");
  trace->add_option("--steps", look.steps, "So many whole steps; default: 1")
      ->type_name("N")
      ->check(number_in(1, 1'000'000));
  trace->add_option("-o,--output", look.output, "Where; default: trace.json")->type_name("FILE");
  CLI::Option_group* change = servers->add_option_group("change");
  change->add_option("--add", look.add, "Start so many more: ranks copy rows to them")
      ->type_name("N")
      ->check(CLI::Range(1U, 1024U));
  change->add_option("--remove", look.remove, "Let server I end once its rows are copied to others")
      ->type_name("I")
      ->check(CLI::Range(0U, 1023U));
  change->require_option(1);
  status->add_flag("--json", look.json, "Print JSON, as the dashboard has it");
}

}  // namespace corro::app
