#include "dashboard/log_page.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "dashboard/board_json.h"
#include "dashboard/json_page.h"

namespace corro::dashboard {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostSearchedText = 256;
constexpr uint64_t kMostPlace = std::numeric_limits<int>::max();
constexpr uint64_t kMostOffset = std::numeric_limits<uint64_t>::max();

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
  CORRO_ASSIGN(const auto before, http::number_of(query, "before", 0, kMostOffset));
  CORRO_ASSIGN(const LogPart part, reader.read(*place, before));
  Json json{{"place", *place}, {"size", part.size}, {"lines", Json::array()}};
  for (const LogLine& line : part.lines) json["lines"].push_back(json_of(line));
  return json;
}

Result<Json> answer_query(LogReader& reader, const http::Query& query) {
  CORRO_ASSIGN(const auto number, http::number_of(query, "place", 0, kMostPlace));
  const auto place = number ? std::optional(static_cast<int>(*number)) : std::nullopt;
  return http::value_of(query, "search").empty() ? read(reader, query, place)
                                                 : find(reader, query, place);
}

}  // namespace

http::Page logs_page(LogReader& reader, const http::Query& query) {
  const auto json = answer_query(reader, query);
  return json.ok() ? page_of(*json) : page_of(json.status());
}

}  // namespace corro::dashboard
