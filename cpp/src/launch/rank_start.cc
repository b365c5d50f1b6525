#include "launch/rank_start.h"

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

std::optional<winsize> terminal_size(int fd) {
  winsize size{};
  if (isatty(fd) == 0 || ioctl(fd, TIOCGWINSZ, &size) != 0) return std::nullopt;
  return size;
}

agent::Start start_of(const LaunchPlan& plan, int rank, const wire::Secret& secret) {
  agent::Start start{.job = plan.job.job_id,
                     .agent = plan.job.agent_on(plan.job.host_of(rank)),
                     .secret = secret,
                     .size = plan.job.ranks,
                     .program = plan.command.program,
                     .arguments = plan.command.arguments,
                     .environment = environment_of(plan, rank)};
  const size_t host_number = plan.job.host_of(rank);
  const JobHost& host = plan.job.hosts[host_number];
  if (!host.own) {
    start.directory = plan.directory;
    start.adds_environment = true;
  }
  const Binding& binding = plan.bindings[host_number];
  if (!binding.ranks.empty()) {
    const std::vector<int>& processors = binding.ranks[static_cast<size_t>(rank - host.first_rank)];
    start.processors.assign(processors.begin(), processors.end());
  }
  // Ranks are in the background, where a terminal cannot be read: the launcher reads it for them.
  const bool inherits = host.own && isatty(STDIN_FILENO) == 0;
  if (rank == 0)
    start.input = inherits ? agent::StandardInput::kInherited : agent::StandardInput::kSent;
  if (has_screen(plan, rank)) {
    start.out_terminal = terminal_size(STDOUT_FILENO);
    start.err_terminal = terminal_size(STDERR_FILENO);
  }
  return start;
}

}  // namespace corro::launch
