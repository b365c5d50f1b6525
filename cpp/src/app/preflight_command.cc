#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "app/commands.h"
#include "diagnosis/exit_status.h"
#include "launch/health_text.h"

namespace corro::app {
namespace {

/// A line on a terminal that the next one replaces; elsewhere nothing is said.
void show_progress(const std::string& line) {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\x1b[K{}", line.empty() ? "" : line + " ...");
  (void)fflush(stderr);
}

}  // namespace

int preflight_command(const Request& request, const Variables& environment) {
  const launch::PlanInputs inputs{.environment = environment,
                                  .machine = agent::read_machine(environment),
                                  .files = launch::real_files(),
                                  .own_directory = own_directory(),
                                  .read_hostfile = launch::read_hostfile,
                                  .job_id = "",
                                  .time = ""};
  const auto plan = launch::plan_preflight(request.preflight, inputs, CORRO_VERSION);
  if (!plan.ok()) {
    complain("corro doctor: " + plan.status().message());
    return diagnosis::kUsageExit;
  }
  const auto health = launch::check_hosts(*plan, show_progress);
  show_progress("");
  if (!health.ok()) {
    complain("corro doctor: " + health.status().message());
    return 1;
  }
  const auto findings = launch::find_faults(*health);
  fmt::print("{}", request.doctor_json ? launch::format_health_json(*health, findings)
                                       : launch::format_health(*health, findings));
  return findings.empty() ? 0 : 1;
}

}  // namespace corro::app
