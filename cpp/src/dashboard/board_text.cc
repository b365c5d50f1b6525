#include "dashboard/board_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "dashboard/board_json.h"

namespace corro::dashboard {
namespace {

/// The lines of one metric, each with its type.
class Metrics {
 public:
  template <typename Number>
  void add(const char* name, const char* type, const char* help, Number value) {
    describe(name, type, help);
    text_ += fmt::format("{} {}\n", name, value);
  }
  void describe(const char* name, const char* type, const char* help) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void line(const std::string& line) { text_ += line; }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string write_job(const Board& board, UnixTime now) { return text_of(json_of(board, now)); }

std::string write_metrics(const Board& board) {
  const JobPicture& job = board.picture();
  Metrics out;
  out.add("corro_job_ranks", "gauge", "Ranks whose processes run.",
          std::ranges::count_if(job.ranks, runs));
  out.add("corro_job_epoch", "gauge", "The job's epoch.", job.epoch);
  if (const auto range = steps_of(job.ranks)) {
    out.add("corro_job_step_min", "gauge", "The least step of a running rank.", range->least);
    out.add("corro_job_step_max", "gauge", "The greatest step of a running rank.", range->most);
  }
  if (board.checkpoint())
    out.add("corro_job_checkpoint_step", "gauge", "The step of the last checkpoint.",
            *board.checkpoint());
  out.add("corro_job_ranks_started_total", "counter", "Processes of ranks started.",
          board.count("started"));
  out.add("corro_job_ranks_lost_total", "counter", "Ranks that have failed or were lost.",
          job.lost);
  out.add("corro_job_waits_total", "counter", "Times that ranks have waited too long for one.",
          board.waits());
  out.add("corro_job_start_time_seconds", "gauge", "When the job began, since 1970.",
          seconds_of(job.started));
  out.describe("corro_job_state", "gauge", "1 for the state that the job is in.");
  for (size_t i = 0; i < kJobStates; ++i) {
    const auto state = static_cast<JobState>(i);
    out.line(fmt::format("corro_job_state{{state=\"{}\"}} {}\n", name_of(state),
                         job.state == state ? 1 : 0));
  }
  return out.take();
}

}  // namespace corro::dashboard
