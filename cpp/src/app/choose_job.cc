#include "app/choose_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "dashboard/terminal_text.h"

namespace corro::app {

Result<launch::RunningJob> choose_job(const std::vector<launch::RunningJob>& jobs,
                                      const std::string& wanted, const std::string& command) {
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
    text += fmt::format("\n  {} {}   {}", command, job.launcher, dashboard::printable(job.command));
  return Status(Code::kNotFound, text);
}

}  // namespace corro::app
