#include "launch/job_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include "dashboard/terminal_text.h"
#include "diagnosis/error_file.h"
#include "diagnosis/flight_text.h"
#include "launch/rank_start.h"

namespace corro::launch {
namespace {

constexpr size_t kAssumedColumns = 80;
constexpr size_t kLeastColumns = 30;  ///< Of a terminal that has room for progress.

screen::Screen::Options screen_options(const LaunchPlan& plan) {
  const bool err = isatty(STDERR_FILENO) != 0;
  const bool out = isatty(STDOUT_FILENO) != 0;
  return {.show = plan.options.show,
          .ranks = plan.job.places(),
          .out_is_terminal = out,
          .err_is_terminal = err,
          .colour = out && err && value_of(plan.base, "NO_COLOR").empty(),
          .time = plan.options.show.timestamps ? screen::local_time : nullptr};
}

}  // namespace

size_t screen_width() {
  constexpr size_t kWidth = 160;
  constexpr size_t kLeast = 40;
  const auto terminal = terminal_size(STDERR_FILENO);
  return terminal && terminal->ws_col > kLeast ? terminal->ws_col : kWidth;
}

Result<JobOutput::Files> JobOutput::open_files(const LaunchPlan& plan) {
  const Earlier earlier = plan.resumed ? Earlier::kKept : Earlier::kDropped;
  CORRO_ASSIGN(LogFiles logs,
               LogFiles::create(plan.job.log_dir, plan.job.places(), plan.job.servers, earlier));
  Files files{.logs = std::move(logs), .streams = {}, .events = {}};
  const RunOptions& options = plan.options;
  if (!options.output_dir.empty()) {
    CORRO_ASSIGN(files.streams,
                 OutputFiles::create(options.output_dir, plan.job.places(),
                                     file_prefix(options.show, screen::local_time), earlier));
  }
  if (!options.events.empty()) {
    CORRO_ASSIGN(files.events, EventFile::create(options.events, earlier));
  }
  return files;
}

JobOutput::JobOutput(const LaunchPlan& plan, Files files,
                     std::unique_ptr<screen::ScreenWriter> writer, int caller)
    : error_file_(value_of(plan.base, "TORCHELASTIC_ERROR_FILE")),
      files_(std::move(files)),
      writer_(std::move(writer)),
      caller_(caller),
      verbose_(plan.options.verbose),
      shows_progress_(caller < 0 && !plan.options.quiet && isatty(STDERR_FILENO) != 0),
      screen_(screen_options(plan), [this](io::Output stream, std::string bytes) {
        writer_->write(stream == io::Output::kOut ? STDOUT_FILENO : STDERR_FILENO,
                       std::move(bytes));
      }) {}

void JobOutput::take(size_t place, const agent::Output& output, Time now) {
  const int rank = static_cast<int>(place);
  if (output.stream == io::Output::kResult) {
    if (caller_ >= 0) writer_->write(caller_, frame_result(rank, output.bytes));
    return;
  }
  note_incomplete(files_.logs.append(rank, output.bytes));
  if (files_.streams) note_incomplete(files_.streams->append(rank, output.stream, output.bytes));
  screen_.feed(rank, output.stream, output.bytes, now);
}

void JobOutput::take(size_t place, const agent::OutputEnd& end, Time now) {
  if (end.stream == io::Output::kResult) return;
  const int rank = static_cast<int>(place);
  if (files_.streams) note_incomplete(files_.streams->finish(rank, end.stream));
  screen_.finish(rank, end.stream, now);
}

void JobOutput::take_server(size_t server, const agent::Output& output) {
  note_incomplete(files_.logs.append_server(server, output.bytes));
  show_server(output.stream, server_lines_.feed(server, output.stream, output.bytes));
}

void JobOutput::take_server(size_t server, const agent::OutputEnd& end) {
  show_server(end.stream, server_lines_.finish(server, end.stream));
}

void JobOutput::show_server(io::Output stream, const std::string& lines) {
  if (!lines.empty() && (stream == io::Output::kErr || verbose_)) note(lines);
}

void JobOutput::note_incomplete(const Status& status) {
  if (!status.ok())
    note(fmt::format("corro: files are incomplete from here on: {}\n", status.message()));
}

void JobOutput::set_status(const std::string& line) {
  screen_.set_status(diagnosis::fit(line, screen_width() - 1));
}

void JobOutput::set_progress(const std::string& line) {
  if (!shows_progress_) return;
  const auto terminal = terminal_size(STDERR_FILENO);
  const size_t width = terminal && terminal->ws_col > 0 ? terminal->ws_col : kAssumedColumns;
  screen_.set_progress(width < kLeastColumns ? "" : dashboard::cut(line, width - 1));
}

void JobOutput::emit(const Event& event) {
  if (files_.events) {
    if (const Status status = files_.events->append(event); !status.ok())
      note(fmt::format("corro: events are missing: {}\n", status.message()));
  }
  if (event.report == nullptr) return;
  const Status status =
      files_.logs.write_file("failure.json", diagnosis::format_json(*event.report));
  if (!status.ok()) note(fmt::format("corro: {}\n", status.message()));
  diagnosis::write_error_file(error_file_, *event.report);
}

void JobOutput::settle(int culprit, Time now) {
  screen_.settle(culprit);
  screen_.flush(now);
}

void JobOutput::say_end(const CallEnd& end) {
  if (caller_ >= 0) return writer_->write(caller_, frame_end(end));
  if (!end.text.empty()) note(end.text);
}

}  // namespace corro::launch
