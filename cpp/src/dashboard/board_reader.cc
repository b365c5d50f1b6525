#include "dashboard/board_reader.h"

#include <nlohmann/json.hpp>

#include "dashboard/picture.h"

namespace corro::dashboard {
namespace {

using Parsed = nlohmann::json;

/// From seconds since 1970.
UnixTime time_of(const Parsed& json) {
  const std::chrono::duration<double> seconds(json.get<double>());
  return UnixTime(std::chrono::round<UnixTime::duration>(seconds));
}

int number_or_none(const Parsed& json) { return json.is_null() ? -1 : json.get<int>(); }
std::string text_or_none(const Parsed& json) {
  return json.is_null() ? "" : json.get<std::string>();
}
std::optional<uint64_t> step_or_none(const Parsed& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<uint64_t>());
}

/// The state of this name; the last one if there is none.
template <typename State>
State state_of(const Parsed& json, State last) {
  const auto name = json.get<std::string>();
  for (uint8_t i = 0; i < static_cast<uint8_t>(last); ++i)
    if (name_of(static_cast<State>(i)) == name) return static_cast<State>(i);
  return last;
}

RankRow rank_of(const Parsed& json) {
  return {.place = json.at("place").get<int>(),
          .rank = number_or_none(json.at("rank")),
          .member = json.at("member").get<std::string>(),
          .host = json.at("host").get<std::string>(),
          .state = state_of(json.at("state"), RankState::kLost),
          .step = step_or_none(json.at("step")),
          .operation = text_or_none(json.at("operation")),
          .phase = text_or_none(json.at("phase")),
          .awaits = number_or_none(json.at("awaits")),
          .pid = json.at("pid").is_null() ? 0 : json.at("pid").get<int>(),
          .cause = text_or_none(json.at("cause"))};
}

Happening happening_of(const Parsed& json) {
  return {.at = time_of(json.at("time")),
          .kind = json.at("kind").get<std::string>(),
          .epoch = json.at("epoch").get<uint32_t>(),
          .rank = number_or_none(json.at("rank")),
          .place = number_or_none(json.at("place")),
          .host = text_or_none(json.at("host")),
          .step = step_or_none(json.at("step")),
          .cause = text_or_none(json.at("cause"))};
}

BoardCopy copy_of(const Parsed& json) {
  BoardCopy copy{.picture = {.job = json.at("job").get<std::string>(),
                             .command = json.at("command").get<std::string>(),
                             .state = state_of(json.at("state"), JobState::kFailed),
                             .summary = json.at("summary").get<std::string>(),
                             .epoch = json.at("epoch").get<uint32_t>(),
                             .started = time_of(json.at("started"))},
                 .now = time_of(json.at("now"))};
  for (const Parsed& one : json.at("ranks")) copy.picture.ranks.push_back(rank_of(one));
  for (const Parsed& one : json.at("events")) copy.happenings.push_back(happening_of(one));
  for (const Parsed& one : json.at("steps"))
    copy.steps.push_back({.at = time_of(one.at(0)), .step = one.at(1).get<uint64_t>()});
  return copy;
}

}  // namespace

Result<BoardCopy> read_job(std::string_view text) {
  try {
    return copy_of(Parsed::parse(text));
  } catch (const Parsed::exception&) {
    return Status(Code::kInvalidArgument,
                  "the job's answer is not understood: another version of corro has started it");
  }
}

}  // namespace corro::dashboard
