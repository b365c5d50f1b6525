#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "app/commands.h"
#include "launch/caller.h"
#include "launch/discovery.h"
#include "launch/launcher.h"
#include "launch/plan.h"

namespace corro::app {
namespace {

std::string random_name() {
  uint64_t value = 0;
  (void)!getrandom(&value, sizeof(value), 0);
  return fmt::format("{:016x}", value);
}

std::string local_time() {
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts);
  return text.data();
}

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
  const agent::Machine machine = agent::read_machine(environment);
  const auto discover_here = [&](const std::string& command, int slots, Duration patience) {
    return discover(command, slots, patience, machine.host);
  };
  const launch::PlanInputs inputs{.environment = environment,
                                  .machine = machine,
                                  .files = launch::real_files(),
                                  .own_directory = own_directory(),
                                  .read_hostfile = launch::read_hostfile,
                                  .discover = discover_here,
                                  .job_id = random_name(),
                                  .time = local_time(),
                                  .master_port = agent::find_free_port()};
  const auto plan = launch::make_plan(options, inputs);
  if (!plan.ok()) return launch::refuse_job(options, plan.status());
  if (options.dry_run) {
    fmt::print("{}", launch::describe_plan(*plan));
    return 0;
  }
  return launch::run_job(*plan, CORRO_VERSION);
}

}  // namespace corro::app
