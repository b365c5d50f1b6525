#include "dashboard/board_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "dashboard/json_fields.h"
#include "dashboard/loads_json.h"

namespace corro::dashboard {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostSeconds = 1e11;  ///< Some thousand years.
constexpr size_t kRankStates = 7;
constexpr uint64_t kMostPlaces = 1U << 16U;

Json number_or_null(int number) { return number < 0 ? Json() : Json(number); }
Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

/// JSON knows no others: they are the words that JavaScript's Number() and Python's float() take.
Json json_of_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return value;
}

template <typename Number>
Json json_or_null(const std::optional<Number>& value) {
  return value ? Json(*value) : Json();
}

/// {"loss": [step, value]}.
Json values_or_null(const std::vector<LoggedValue>& values) {
  Json json;
  for (const LoggedValue& one : values)
    json[one.name] = Json::array({one.step, json_of_number(one.value)});
  return json;
}

Json json_of_metric(const Metric& metric, const Board::Course& course) {
  Json points = Json::array();
  for (const Series::Point& one : course.series.points())
    points.push_back({seconds_of(one.at), one.step, json_of_number(one.value)});
  return {{"name", metric.name},
          {"step", metric.step},
          {"mean", json_of_number(metric.mean)},
          {"least", json_of_number(metric.least)},
          {"most", json_of_number(metric.most)},
          {"ranks", metric.ranks},
          {"points", std::move(points)}};
}

Json list_metrics(const Board& board) {
  Json json = Json::array();
  const std::vector<Metric> metrics = metrics_of(board.picture().ranks);
  for (const Board::Course& course : board.courses()) {
    const auto metric = std::ranges::find(metrics, course.name, &Metric::name);
    if (metric != metrics.end()) json.push_back(json_of_metric(*metric, course));
  }
  return json;
}

Json progress_or_null(const std::optional<Progress>& progress) {
  if (!progress) return {};
  return {{"step", progress->step},
          {"of", json_or_null(progress->of)},
          {"steps_per_second", json_or_null(progress->steps_per_second)},
          {"eta_seconds", json_or_null(progress->eta_seconds)}};
}

/// Of json_of_number().
std::optional<double> number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (json == "Infinity") return std::numeric_limits<double>::infinity();
  if (json == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

bool read_values(const Json& json, std::vector<LoggedValue>& values) {
  const Json* field = field_of(json, "values");
  if (field == nullptr) return true;
  values.clear();
  if (!field->is_null() && !field->is_object()) return false;
  for (const auto& [name, pair] : field->items()) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned()) return false;
    const auto value = number_of(pair[1]);
    if (!value) return false;
    values.push_back({.name = name, .value = *value, .step = pair[0].get<uint64_t>()});
  }
  return true;
}

/// The state of `count` ones that is called so.
template <typename State>
bool read_state(const Json& json, size_t count, State& state) {
  std::string name;
  if (!read_text(json, "state", name)) return false;
  if (name.empty()) return true;
  for (size_t i = 0; i < count; ++i) {
    state = static_cast<State>(i);
    if (name_of(state) == name) return true;
  }
  return false;
}

// A plan is written by ranks, and drawn by the page as it is.

bool has_texts(const Json& json, std::initializer_list<const char*> names) {
  return std::ranges::all_of(names, [&](const char* name) {
    const Json* field = field_of(json, name);
    return field != nullptr && field->is_string();
  });
}

bool is_amount(const Json* field) {
  return field != nullptr && field->is_number() && field->get<double>() >= 0;
}

bool has_amounts(const Json& json, std::initializer_list<const char*> names) {
  return std::ranges::all_of(names,
                             [&](const char* name) { return is_amount(field_of(json, name)); });
}

bool is_stage(const Json& json) {
  if (!json.is_object() || !has_texts(json, {"ranks"})) return false;
  const Json* layers = field_of(json, "layers");
  return layers != nullptr && layers->is_array() && layers->size() == 2 &&
         std::ranges::all_of(*layers, [](const Json& one) { return one.is_number_unsigned(); }) &&
         has_amounts(json, {"memory_bytes", "limit_bytes", "forward_seconds", "backward_seconds"});
}

bool is_term(const Json& json) {
  return json.is_array() && json.size() == 3 && json[0].is_string() && is_amount(&json[1]) &&
         is_amount(&json[2]);
}

template <typename Is>
bool has_list(const Json& json, const char* name, const Is& is) {
  const Json* list = field_of(json, name);
  return list != nullptr && list->is_array() && std::ranges::all_of(*list, is);
}

bool is_plan(const Json& json) {
  if (!json.is_object() || !has_texts(json, {"text", "why", "limiting", "schedule"})) return false;
  const Json* measured = field_of(json, "measured_seconds");
  return has_amounts(json, {"step_seconds", "micro_batches", "chunks"}) && measured != nullptr &&
         (measured->is_null() || is_amount(measured)) && has_list(json, "terms", is_term) &&
         has_list(json, "stages", is_stage);
}

/// Kept as text.
bool read_plan(const Json& json, std::string& text) {
  const Json* field = field_of(json, "plan");
  if (field == nullptr) return true;
  if (!field->is_null() && !is_plan(*field)) return false;
  text = field->is_null() ? "" : text_of(*field);
  return true;
}

}  // namespace

Json plan_or_null(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  return is_plan(json) ? json : Json();
}

double seconds_of(UnixTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

std::optional<UnixTime> time_of(const Json& seconds) {
  if (!seconds.is_number()) return std::nullopt;
  const double value = seconds.get<double>();
  if (!(value >= 0 && value < kMostSeconds)) return std::nullopt;
  return UnixTime(std::chrono::round<UnixTime::duration>(std::chrono::duration<double>(value)));
}

Json json_of(const RankRow& one) {
  return {{"rank", number_or_null(one.rank)},
          {"place", one.place},
          {"member", one.member},
          {"host", one.host},
          {"state", name_of(one.state)},
          {"step", json_or_null(one.step)},
          {"operation", text_or_null(one.operation)},
          {"phase", text_or_null(one.phase)},
          {"awaits", number_or_null(one.awaits)},
          {"pid", one.pid == 0 ? Json() : Json(one.pid)},
          {"cause", text_or_null(one.cause)},
          {"of", json_or_null(one.of)},
          {"done", json_or_null(one.done)},
          {"step_seconds", json_or_null(one.step_seconds)},
          {"wait_share", json_or_null(one.wait_share)},
          {"values", values_or_null(one.values)}};
}

Json json_of(const Happening& one) {
  return {{"time", seconds_of(one.at)},
          {"kind", one.kind},
          {"epoch", one.epoch},
          {"rank", number_or_null(one.rank)},
          {"place", number_or_null(one.place)},
          {"host", text_or_null(one.host)},
          {"cause", text_or_null(one.cause)},
          {"step", json_or_null(one.step)}};
}

Json json_of(const Board& board, UnixTime now) {
  const JobPicture& job = board.picture();
  Json json{{"summary", job.summary},
            {"state", name_of(job.state)},
            {"job", job.job},
            {"command", job.command},
            {"epoch", job.epoch},
            {"started", seconds_of(job.started)},
            {"now", seconds_of(now)},
            {"ranks", Json::array()},
            {"events", Json::array()},
            {"steps", Json::array()},
            {"progress", progress_or_null(progress_of(job, board.steps(), now))},
            {"metrics", list_metrics(board)},
            {"plan", plan_or_null(job.plan)},
            {"links", json_of_links(board)},
            {"tables", json_of_tables(board)}};
  for (const RankRow& one : job.ranks) json["ranks"].push_back(json_of(one));
  for (const Happening& one : board.happenings()) json["events"].push_back(json_of(one));
  for (const StepPoint& one : board.steps())
    json["steps"].push_back(Json::array({seconds_of(one.at), one.step}));
  return json;
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<int> read_place(const Json& row) {
  const Json* place = row.is_object() ? field_of(row, "place") : nullptr;
  const bool is_one = place != nullptr && place->is_number_unsigned();
  if (!is_one || place->get<uint64_t>() >= kMostPlaces) return std::nullopt;
  return place->get<int>();
}

bool change(RankRow& row, const Json& fields) {
  return fields.is_object() && read_number(fields, "rank", row.rank, -1) &&
         read_text(fields, "member", row.member) && read_text(fields, "host", row.host) &&
         read_state(fields, kRankStates, row.state) && read_step(fields, "step", row.step) &&
         read_text(fields, "operation", row.operation) && read_text(fields, "phase", row.phase) &&
         read_number(fields, "awaits", row.awaits, -1) && read_number(fields, "pid", row.pid, 0) &&
         read_text(fields, "cause", row.cause) && read_step(fields, "of", row.of) &&
         read_step(fields, "done", row.done) &&
         read_real(fields, "step_seconds", row.step_seconds) &&
         read_real(fields, "wait_share", row.wait_share) && read_values(fields, row.values);
}

bool change(JobPicture& picture, const Json& fields) {
  return fields.is_object() && read_text(fields, "job", picture.job) &&
         read_text(fields, "command", picture.command) &&
         read_text(fields, "summary", picture.summary) &&
         read_state(fields, kJobStates, picture.state) && read_plan(fields, picture.plan) &&
         read_number(fields, "epoch", picture.epoch, 0U) &&
         read_number(fields, "lost", picture.lost, uint64_t{0}) &&
         read_links(fields, picture.links) && read_tables(fields, picture.tables);
}

std::optional<Happening> read_happening(const Json& json) {
  Happening made;
  const Json* time = json.is_object() ? field_of(json, "time") : nullptr;
  const auto at = time == nullptr ? std::nullopt : time_of(*time);
  const bool is_whole =
      at && read_text(json, "kind", made.kind) && read_number(json, "epoch", made.epoch, 0U) &&
      read_number(json, "rank", made.rank, -1) && read_number(json, "place", made.place, -1) &&
      read_text(json, "host", made.host) && read_step(json, "step", made.step) &&
      read_text(json, "cause", made.cause);
  if (!is_whole) return std::nullopt;
  made.at = *at;
  return made;
}

}  // namespace corro::dashboard
