#include "dashboard/board_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "dashboard/board_json.h"

namespace corro::dashboard {
namespace {

/// The lines of one metric, each with its type.
class MetricLines {
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
  void add(const char* name, const char* help, const DurationHistogram& histogram) {
    describe(name, "histogram", help);
    text_ += prometheus_lines(histogram, name, "");
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// As Prometheus writes what is no number.
std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
  return fmt::format("{}", value);
}

/// The value of a label: text of others.
std::string label_of(const std::string& text) {
  std::string label;
  for (const char c : text) {
    if (c == '\\' || c == '"') label += '\\';
    label += c == '\n' ? ' ' : c;
  }
  return label;
}

/// How far the training is, and the means of what ranks log: one series a name, however many ranks.
void add_training(MetricLines& out, const Board& board, UnixTime now) {
  const auto progress = progress_of(board.picture(), board.steps(), now);
  if (progress && progress->of)
    out.add("corro_job_steps", "gauge", "Steps of the whole training.", *progress->of);
  if (progress && progress->eta_seconds)
    out.add("corro_job_eta_seconds", "gauge", "How long the training takes yet, about.",
            *progress->eta_seconds);
  const std::vector<Metric> metrics = metrics_of(board.picture().ranks);
  if (metrics.empty()) return;
  out.describe("corro_log_value", "gauge", "What ranks log: the mean of their newest values.");
  for (const Metric& one : metrics)
    out.line(fmt::format("corro_log_value{{name=\"{}\"}} {}\n", label_of(one.name),
                         prometheus_number(one.mean)));
}

/// One series for each pair of hosts over which something went.
void add_links(MetricLines& out, const Board& board) {
  const std::vector<HostLink> links = board.links().all();
  if (links.empty()) return;
  out.describe("corro_job_link_sent_bytes_total", "counter",
               "Bytes of messages that ranks of a host have sent to those of another.");
  for (const HostLink& one : links)
    out.line(fmt::format("corro_job_link_sent_bytes_total{{from=\"{}\",to=\"{}\"}} {}\n",
                         label_of(one.from), label_of(one.to), one.bytes));
}

/// What servers have of a table, and have done with it: a series for each.
struct TableMetric {
  const char* name;
  const char* type;
  const char* help;
  uint64_t TablePart::* value;
};
constexpr std::array kTableMetrics = {
    TableMetric{"corro_job_table_rows", "gauge", "Rows.", &TablePart::rows},
    TableMetric{"corro_job_table_bytes", "gauge", "Memory that rows take.", &TablePart::bytes},
    TableMetric{"corro_job_table_shards", "gauge", "Shards that it serves.", &TablePart::shards},
    TableMetric{"corro_job_table_pulls_total", "counter", "Pulls.", &TablePart::pulls},
    TableMetric{"corro_job_table_pulled_rows_total", "counter", "Rows that were pulled.",
                &TablePart::pulled_rows},
    TableMetric{"corro_job_table_pushes_total", "counter", "Pushes.", &TablePart::pushes},
    TableMetric{"corro_job_table_pushed_rows_total", "counter", "Rows that were pushed.",
                &TablePart::pushed_rows}};

std::string labels_of(const TablePart& part) {
  return fmt::format(R"(table="{}",server="{}")", label_of(part.table), part.server);
}

void add_tables(MetricLines& out, const std::vector<TablePart>& parts) {
  if (parts.empty()) return;
  for (const TableMetric& metric : kTableMetrics) {
    out.describe(metric.name, metric.type, metric.help);
    for (const TablePart& one : parts)
      out.line(fmt::format("{}{{{}}} {}\n", metric.name, labels_of(one), one.*metric.value));
  }
  out.describe("corro_job_table_pull_p99_seconds", "gauge",
               "How long a server takes for a pull: 99 of 100 of the last ones take less.");
  for (const TablePart& one : parts)
    out.line(fmt::format("corro_job_table_pull_p99_seconds{{{}}} {}\n", labels_of(one),
                         std::chrono::duration<double>(one.pull_p99).count()));
}

}  // namespace

std::string write_job(const Board& board, UnixTime now) { return text_of(json_of(board, now)); }

std::string write_metrics(const Board& board, UnixTime now) {
  const JobPicture& job = board.picture();
  MetricLines out;
  out.add("corro_job_ranks", "gauge", "Ranks whose processes run.",
          std::ranges::count_if(job.ranks, runs));
  out.add("corro_job_epoch", "gauge", "The job's epoch.", job.epoch);
  if (const auto range = steps_of(job.ranks)) {
    out.add("corro_job_step_min", "gauge", "The least step of a running rank.", range->least);
    out.add("corro_job_step_max", "gauge", "The greatest step of a running rank.", range->most);
  }
  const StepHistograms steps = board.step_histograms();
  out.add("corro_job_step_duration_seconds", "How long steps of ranks took.", steps.taken);
  out.add("corro_job_step_wait_duration_seconds",
          "How long ranks waited in a step for collectives.", steps.waited);
  add_training(out, board, now);
  add_links(out, board);
  add_tables(out, job.tables);
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
