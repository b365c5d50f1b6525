#include <fmt/format.h>

#include <cstdio>

#include "app/commands.h"
#include "diagnosis/exit_status.h"

namespace corro::app {

int dash_command(const launch::PastJobOptions& options) {
  const Status shown = launch::show_past_job(options, [](const std::string& address) {
    fmt::print("dashboard  {}\n", address);
    (void)std::fflush(stdout);  // Whoever reads it through a pipe waits for it.
  });
  if (shown.ok()) return 0;
  complain("corro dash: " + shown.message());
  return diagnosis::kUsageExit;
}

}  // namespace corro::app
