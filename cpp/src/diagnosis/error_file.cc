#include "diagnosis/error_file.h"

#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/files.h"

namespace corro::diagnosis {

std::optional<std::string> read_error_message(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  auto message = json.find("message");
  // torch writes {"message": {"message": "...", "extraInfo": {...}}}, or the text alone.
  if (message != json.end() && message->is_object()) {
    const auto inner = message->find("message");
    if (inner == message->end() || !inner->is_string()) return std::nullopt;
    return inner->get<std::string>();
  }
  if (message == json.end() || !message->is_string()) return std::nullopt;
  return message->get<std::string>();
}

std::string format_error_file(const FailureReport& report, int64_t unix_time) {
  nlohmann::ordered_json json;
  json["message"]["message"] = report.cause;
  json["message"]["errorCode"] = report.exit;
  json["message"]["extraInfo"]["py_callstack"] = report.where;
  json["message"]["extraInfo"]["timestamp"] = std::to_string(unix_time);
  json["message"]["extraInfo"]["rank"] = report.rank;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void read_error_files(std::vector<RankEnd>& ends, const std::string& directory) {
  for (RankEnd& end : ends) {
    if (!end.crash.error.empty() || ended_well(end)) continue;
    const std::string path = fmt::format("{}/rank-{}.error.json", directory, end.rank);
    if (const auto message = read_error_message(io::read_small_file(path)))
      end.crash.error = *message;
  }
}

void write_error_file(const std::string& path, const FailureReport& report) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << format_error_file(report, time(nullptr));
}

}  // namespace corro::diagnosis
