#include <fmt/format.h>
#include <unistd.h>

#include "app/choose_job.h"
#include "app/commands.h"
#include "dashboard/job_screen.h"
#include "dashboard/terminal_text.h"
#include "launch/rank_start.h"

namespace corro::app {
namespace {

using launch::Question;
using launch::RunningJob;

dashboard::ScreenOptions screen_options(const Variables& environment) {
  dashboard::ScreenOptions options;
  const auto terminal = launch::terminal_size(STDOUT_FILENO);
  if (!terminal) return options;
  if (terminal->ws_col > 0) options.width = terminal->ws_col;
  options.colour = value_of(environment, "NO_COLOR").empty();
  return options;
}

/// The job in one line: how to name it, and its sentence.
std::string line_of(const RunningJob& job, Result<std::string> answer) {
  const auto board = answer.ok() ? dashboard::read_job(*answer) : answer.status();
  const std::string& said = board.ok() ? board->picture.summary : board.status().message();
  return fmt::format("  corro status {}   {}   ({})", job.launcher, dashboard::printable(said),
                     dashboard::printable(job.command));
}

/// All are asked before one is waited for.
void list(const std::vector<RunningJob>& jobs, const dashboard::ScreenOptions& options) {
  std::vector<Result<launch::Inquiry>> inquiries;
  for (const RunningJob& job : jobs)
    inquiries.push_back(launch::Inquiry::create(job, Question::kPicture));
  const Time deadline = monotonic_now() + kAnswerPatience;
  fmt::print("several jobs of yours run here; one of them in full:\n");
  for (size_t i = 0; i < jobs.size(); ++i) {
    auto& inquiry = inquiries[i];
    const std::string line =
        line_of(jobs[i], inquiry.ok() ? inquiry->wait(deadline) : inquiry.status());
    fmt::print("{}\n", dashboard::cut(line, options.width));
  }
}

Status print_job(const RunningJob& job, const dashboard::ScreenOptions& options, bool is_json) {
  CORRO_ASSIGN(const std::string answer, launch::ask(job, Question::kPicture, kAnswerPatience));
  if (is_json) {
    fmt::print("{}\n", answer);
    return {};
  }
  CORRO_ASSIGN(const auto board, dashboard::read_job(answer));
  for (const std::string& line : dashboard::job_lines(board, options)) fmt::print("{}\n", line);
  return {};
}

Status show(const std::string& wanted, bool is_json, const Variables& environment) {
  const auto jobs = launch::find_jobs();
  const dashboard::ScreenOptions options = screen_options(environment);
  if (wanted.empty() && jobs.size() > 1 && !is_json) {
    list(jobs, options);
    return {};
  }
  CORRO_ASSIGN(const RunningJob job, choose_job(jobs, wanted, "corro status"));
  return print_job(job, options, is_json);
}

}  // namespace

int status_command(const std::string& job, bool is_json, const Variables& environment) {
  const Status shown = show(job, is_json, environment);
  if (shown.ok()) return 0;
  complain("corro status: " + shown.message());
  return 1;
}

}  // namespace corro::app
