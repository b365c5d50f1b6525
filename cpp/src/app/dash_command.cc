#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "app/choose_job.h"
#include "app/commands.h"
#include "diagnosis/exit_status.h"

namespace corro::app {
namespace {

void say(const std::string& address) {
  fmt::print("dashboard  {}\n", address);
  (void)std::fflush(stdout);  // Whoever reads it through a pipe waits for it.
}

/// What is no file may be the name of a job that runs.
bool is_running(const std::string& wanted, const std::vector<launch::RunningJob>& jobs) {
  std::error_code ignored;
  if (wanted.empty()) return true;
  return !std::filesystem::exists(wanted, ignored) && choose_job(jobs, wanted, "").ok();
}

Status show_running(const std::string& wanted, const std::vector<launch::RunningJob>& jobs) {
  CORRO_ASSIGN(const auto job, choose_job(jobs, wanted, "corro dash"));
  CORRO_ASSIGN(const std::string address,
               launch::ask(job, launch::Question::kPage, kAnswerPatience));
  say(address);
  return {};
}

}  // namespace

int dash_command(const launch::PastJobOptions& options) {
  const auto jobs = launch::find_jobs();
  const Status shown = is_running(options.path, jobs) ? show_running(options.path, jobs)
                                                      : launch::show_past_job(options, say);
  if (shown.ok()) return 0;
  complain("corro dash: " + shown.message());
  return diagnosis::kUsageExit;
}

}  // namespace corro::app
