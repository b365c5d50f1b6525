#include <fmt/format.h>

#include <csignal>

#include "app/commands.h"
#include "launch/caller.h"
#include "launch/discovery.h"
#include "launch/plan_inputs.h"
#include "launch/run_job.h"

namespace corro::app {
namespace {

/// Waits for the hosts of --host-discovery; people see why.
Result<std::vector<launch::HostSlots>> discover(const std::string& command, int slots,
                                                Duration patience, const std::string& own) {
  sigset_t mask{};
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  launch::HostDiscovery discovery(command, own, mask);
  return launch::wait_for_hosts(discovery, slots, patience, [](const std::string& why) {
    fmt::print(stderr, "corro: waiting for hosts: {}\n", why);
  });
}

}  // namespace

int run_command(const launch::RunOptions& options, const Variables& environment) {
  launch::PlanInputs inputs = launch::inputs_from_here(environment, own_directory());
  inputs.discover = [&](const std::string& command, int slots, Duration patience) {
    return discover(command, slots, patience, inputs.machine.host);
  };
  const auto plan = launch::make_plan(options, inputs);
  if (!plan.ok()) return launch::refuse_job(options, plan.status());
  if (options.dry_run) {
    fmt::print("{}", launch::describe_plan(*plan));
    return 0;
  }
  return launch::run_job(*plan, CORRO_VERSION);
}

}  // namespace corro::app
