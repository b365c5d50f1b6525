#include "launch/worker_spec.h"

#include <unistd.h>

namespace corro::launch {
namespace {

/// Whether the rank's output goes to the screen as it is: then it may have a terminal.
bool has_screen(const LaunchPlan& plan, int rank) {
  const screen::Show& show = plan.options.show;
  const bool one = show.mode == screen::ShowMode::kRanks && show.ranks.size() == 1;
  return rank == (one ? show.ranks[0] : 0) &&
         (plan.job.ranks == 1 || show.mode != screen::ShowMode::kAll);
}

}  // namespace

agent::WorkerSpec worker_spec(const LaunchPlan& plan, int rank) {
  agent::WorkerSpec spec;
  spec.program = plan.command.program;
  spec.arguments = plan.command.arguments;
  spec.environment = environment_of(plan, rank);
  if (!plan.binding.ranks.empty()) spec.processors = plan.binding.ranks[static_cast<size_t>(rank)];
  // A terminal cannot be read from the background: then there is no input.
  spec.inherits_stdin = rank == 0 && isatty(STDIN_FILENO) == 0;
  if (has_screen(plan, rank)) {
    spec.out_terminal = agent::terminal_size(STDOUT_FILENO);
    spec.err_terminal = agent::terminal_size(STDERR_FILENO);
  }
  return spec;
}

}  // namespace corro::launch
