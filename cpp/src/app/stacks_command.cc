#include <fmt/format.h>

#include <algorithm>

#include "app/commands.h"
#include "launch/control_socket.h"

namespace corro::app {
namespace {

constexpr Duration kPatience = std::chrono::seconds(10);

/// The job that is meant, or a line that says why none is.
Result<launch::RunningJob> choose_job(const std::string& wanted) {
  const auto jobs = launch::find_jobs();
  const auto is_wanted = [&](const launch::RunningJob& job) {
    return job.id == wanted || std::to_string(job.launcher) == wanted;
  };
  const auto found = std::ranges::find_if(jobs, is_wanted);
  if (found != jobs.end()) return *found;
  if (jobs.empty()) return Status(Code::kNotFound, "no job of yours runs on this host");
  if (wanted.empty() && jobs.size() == 1) return jobs[0];
  std::string text = wanted.empty() ? "several jobs of yours run here; say which one:"
                                    : fmt::format("no job {} here; there is:", wanted);
  for (const launch::RunningJob& job : jobs)
    text += fmt::format("\n  corro stacks {}   {}", job.launcher, job.command);
  return Status(Code::kNotFound, text);
}

}  // namespace

int stacks_command(const std::string& job) {
  const auto chosen = choose_job(job);
  const auto text =
      chosen.ok() ? launch::ask_stacks(*chosen, kPatience) : Result<std::string>(chosen.status());
  if (!text.ok()) {
    complain("corro stacks: " + text.status().message());
    return 1;
  }
  fmt::print("{}", *text);
  return 0;
}

}  // namespace corro::app
