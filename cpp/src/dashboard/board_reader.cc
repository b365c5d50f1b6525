#include "dashboard/board_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "dashboard/board_json.h"

namespace corro::dashboard {
namespace {

using Json = nlohmann::ordered_json;

bool read_time(const Json& json, const char* name, UnixTime& time) {
  const auto read = time_of(json.value(name, Json()));
  time = read.value_or(UnixTime{});
  return read.has_value();
}

/// Calls `read` for each element; false: it has failed, or there is no such list.
template <typename Read>
bool read_list(const Json& json, const char* name, const Read& read) {
  const auto list = json.find(name);
  return list != json.end() && list->is_array() && std::ranges::all_of(*list, read);
}

bool read_rank(const Json& json, std::vector<RankRow>& ranks) {
  const auto place = read_place(json);
  return place && change(ranks.emplace_back(RankRow{.place = *place}), json);
}

bool read_event(const Json& json, std::vector<Happening>& happenings) {
  auto happening = read_happening(json);
  if (happening) happenings.push_back(std::move(*happening));
  return happening.has_value();
}

bool read_point(const Json& json, std::vector<StepPoint>& steps) {
  if (!json.is_array() || json.size() != 2 || !json[1].is_number_unsigned()) return false;
  const auto time = time_of(json[0]);
  if (time) steps.push_back({.at = *time, .step = json[1].get<uint64_t>()});
  return time.has_value();
}

bool read_copy(const Json& json, BoardCopy& copy) {
  return json.is_object() && change(copy.picture, json) &&
         read_time(json, "started", copy.picture.started) && read_time(json, "now", copy.now) &&
         read_list(json, "ranks",
                   [&](const Json& one) { return read_rank(one, copy.picture.ranks); }) &&
         read_list(json, "events",
                   [&](const Json& one) { return read_event(one, copy.happenings); }) &&
         read_list(json, "steps", [&](const Json& one) { return read_point(one, copy.steps); });
}

}  // namespace

Result<BoardCopy> read_job(std::string_view text) {
  BoardCopy copy;
  if (read_copy(Json::parse(text, nullptr, false), copy)) return copy;
  return Status(Code::kInvalidArgument,
                "the job's answer is not understood: another version of corro has started it");
}

}  // namespace corro::dashboard
