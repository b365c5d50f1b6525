#include "dashboard/log_page.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

namespace corro::dashboard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBadRequest = 400;
constexpr int kNotFound = 404;
constexpr size_t kMostSearchedText = 256;

http::Page answer(const Json& json, int status = 200) {
  return {.status = status,
          .text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n",
          .type = http::kJson};
}

http::Page refuse(const Status& status) {
  const bool is_absent = status.code() == Code::kNotFound;
  return answer({{"error", status.message()}}, is_absent ? kNotFound : kBadRequest);
}

/// None: there is no such parameter.
template <typename Number>
Result<std::optional<Number>> read_number(const http::Query& query, std::string_view name) {
  const std::string_view text = http::value_of(query, name);
  if (text.empty()) return std::optional<Number>();
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && stop == text.data() + text.size();
  if (is_number && text[0] != '-') return std::optional<Number>(number);
  return Status(Code::kInvalidArgument, fmt::format("{}: give a number from 0 on", name));
}

/// [where it begins, its number or null, its text]
Json json_of(const LogLine& line) {
  return Json::array({line.at, line.number ? Json(*line.number) : Json(), line.text});
}

Result<Json> find(LogReader& reader, const http::Query& query, std::optional<int> place) {
  const std::string text(http::value_of(query, "search"));
  if (text.size() > kMostSearchedText)
    return Status(Code::kInvalidArgument,
                  fmt::format("search: at most {} bytes", kMostSearchedText));
  CORRO_ASSIGN(const LogMatches matches, reader.search(text, place));
  Json json{{"matches", Json::array()}, {"older", matches.older}, {"unread", matches.unread}};
  for (const LogMatch& match : matches.lines) {
    Json line = json_of(match.line);
    line.insert(line.begin(), match.place);
    json["matches"].push_back(std::move(line));
  }
  return json;
}

Result<Json> read(LogReader& reader, const http::Query& query, std::optional<int> place) {
  if (!place) return Status(Code::kInvalidArgument, "give a place, or a text to search");
  CORRO_ASSIGN(const auto before, read_number<uint64_t>(query, "before"));
  CORRO_ASSIGN(const LogPart part, reader.read(*place, before));
  Json json{{"place", *place}, {"size", part.size}, {"lines", Json::array()}};
  for (const LogLine& line : part.lines) json["lines"].push_back(json_of(line));
  return json;
}

Result<Json> answer_query(LogReader& reader, const http::Query& query) {
  CORRO_ASSIGN(const auto place, read_number<int>(query, "place"));
  return http::value_of(query, "search").empty() ? read(reader, query, place)
                                                 : find(reader, query, place);
}

}  // namespace

http::Page logs_page(LogReader& reader, const http::Query& query) {
  const auto json = answer_query(reader, query);
  return json.ok() ? answer(*json) : refuse(json.status());
}

}  // namespace corro::dashboard
