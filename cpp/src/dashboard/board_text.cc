#include "dashboard/board_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace corro::dashboard {
namespace {

using Json = nlohmann::ordered_json;

double seconds_of(UnixTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

Json number_or_null(int number) { return number < 0 ? Json() : Json(number); }
Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json step_or_null(const std::optional<uint64_t>& step) { return step ? Json(*step) : Json(); }

Json json_of(const RankRow& one) {
  return {{"rank", number_or_null(one.rank)},
          {"place", one.place},
          {"member", one.member},
          {"host", one.host},
          {"state", name_of(one.state)},
          {"step", step_or_null(one.step)},
          {"operation", text_or_null(one.operation)},
          {"phase", text_or_null(one.phase)},
          {"awaits", number_or_null(one.awaits)},
          {"pid", one.pid == 0 ? Json() : Json(one.pid)},
          {"cause", text_or_null(one.cause)}};
}

Json json_of(const Happening& one) {
  return {{"time", seconds_of(one.at)},
          {"kind", one.kind},
          {"epoch", one.epoch},
          {"rank", number_or_null(one.rank)},
          {"place", number_or_null(one.place)},
          {"host", text_or_null(one.host)},
          {"cause", text_or_null(one.cause)},
          {"step", step_or_null(one.step)}};
}

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

std::string write_job(const Board& board, UnixTime now) {
  const JobPicture& job = board.picture();
  Json json{{"summary", job.summary},  {"state", name_of(job.state)},
            {"job", job.job},          {"command", job.command},
            {"epoch", job.epoch},      {"started", seconds_of(job.started)},
            {"now", seconds_of(now)},  {"ranks", Json::array()},
            {"events", Json::array()}, {"steps", Json::array()}};
  for (const RankRow& one : job.ranks) json["ranks"].push_back(json_of(one));
  for (const Happening& one : board.happenings()) json["events"].push_back(json_of(one));
  for (const Board::Point& one : board.steps())
    json["steps"].push_back(Json::array({seconds_of(one.at), one.step}));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

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
