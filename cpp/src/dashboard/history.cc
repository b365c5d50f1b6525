// A picture has all ranks, and most of it is as it was a second before: a line has of each rank only
// the fields that have changed, and nothing of a rank of which none has. Whoever reads it begins at
// the first line, where all is new, and changes rows line by line. To show any time at once it keeps
// what it had after each MiB.
//
// How much is written: a picture of b bytes at the age of t is followed by none for
// b * (t + 1 h) / 6 MiB. So pictures come at 6 MiB / (t + 1 h), which adds up to 6 MiB * ln(t / 1 h),
// for eight ranks one a second for hours, for a thousand one in some ten; 48 MiB last for months.
#include "dashboard/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "dashboard/board_json.h"
#include "dashboard/loads_json.h"

namespace corro::dashboard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr const char* kVersionField = "corro_history";
constexpr uint64_t kPictureBytesPerAge = 6U << 20U;
constexpr std::chrono::seconds kFirstAge = std::chrono::hours(1);
constexpr size_t kBetweenStates = 1U << 20U;

/// The fields of `now` that are others than those of `before`; null: none is.
Json changes(const Json& before, const Json& now) {
  Json changed;
  for (const auto& [name, value] : now.items())
    if (before.value(name, Json()) != value || !before.contains(name)) changed[name] = value;
  if (!changed.is_null()) changed["place"] = now.at("place");
  return changed;
}

/// The row of this place, which may be new; null: no job has such a place.
RankRow* row_at(std::vector<RankRow>& ranks, const Json& fields) {
  const auto place = read_place(fields);
  if (!place) return nullptr;
  auto row = std::ranges::lower_bound(ranks, *place, {}, &RankRow::place);
  if (row == ranks.end() || row->place != *place) row = ranks.insert(row, {.place = *place});
  return &*row;
}

bool change_ranks(std::vector<RankRow>& ranks, const Json& rows) {
  return rows.is_array() && std::ranges::all_of(rows, [&](const Json& fields) {
           RankRow* row = row_at(ranks, fields);
           return row != nullptr && change(*row, fields);
         });
}

/// A plan without what was measured, which is another one at each look.
Json decided_in(const std::string& plan) {
  Json decided = plan_or_null(plan);
  if (decided.is_object()) decided["terms"] = decided["measured_seconds"] = nullptr;
  return decided;
}

Status check_version(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains(kVersionField))
    return {Code::kInvalidArgument, "it is no history of a job"};
  const Json& version = json[kVersionField];
  if (version == kVersion) return {};
  return {Code::kInvalidArgument,
          fmt::format("it is of version {}, and this corro reads version {}",
                      version.is_number() ? text_of(version) : "'?'", kVersion)};
}

}  // namespace

std::chrono::seconds pause_after(uint64_t bytes, std::chrono::seconds age) {
  const auto since = static_cast<uint64_t>((std::max(age, {}) + kFirstAge).count());
  return std::chrono::seconds(std::max<uint64_t>(1, bytes * since / kPictureBytesPerAge));
}

std::string HistoryWriter::begin(const JobPicture& picture) {
  started_ = picture.started;
  const Json json{{kVersionField, kVersion},
                  {"time", seconds_of(started_)},
                  {"job", picture.job},
                  {"command", picture.command}};
  return take(text_of(json) + "\n", kMostHistoryBytes);
}

std::string HistoryWriter::hear(const Happening& happening) {
  if (happening.kind == "step") return "";
  return take(text_of({{"event", json_of(happening)}}) + "\n", kMostHistoryBytes);
}

std::string HistoryWriter::show(const JobPicture& picture, UnixTime now) {
  links_.show(picture.links, now);
  const std::string line = line_of(picture, now);
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - started_);
  due_ = now + pause_after(line.size(), age);
  std::string taken = take(line, kMostPictureBytes);
  if (!taken.empty()) {
    ranks_ = picture.ranks;
    tables_ = picture.tables;
    if (decided_in(picture.plan) != decided_in(plan_)) plan_ = picture.plan;
  }
  return taken;
}

std::string HistoryWriter::end(const JobPicture& picture, UnixTime now) {
  due_ = UnixTime::max();
  links_.show(picture.links, now);
  if (picture.plan != plan_) plan_.clear();  // The end has what was measured.
  return take(line_of(picture, now), UINT64_MAX);
}

std::string HistoryWriter::line_of(const JobPicture& picture, UnixTime now) {
  Json json{
      {"time", seconds_of(now)}, {"summary", picture.summary}, {"state", name_of(picture.state)},
      {"epoch", picture.epoch},  {"lost", picture.lost},       {"ranks", Json::array()}};
  if (decided_in(picture.plan) != decided_in(plan_)) json["plan"] = plan_or_null(picture.plan);
  if (!picture.links.empty()) json["links"] = history_of_links(links_);
  if (picture.tables != tables_) json["tables"] = history_of_tables(picture.tables);
  for (const RankRow& row : picture.ranks) {
    const auto before = std::ranges::lower_bound(ranks_, row.place, {}, &RankRow::place);
    const bool is_new = before == ranks_.end() || before->place != row.place;
    Json changed = changes(is_new ? Json::object() : json_of(*before), json_of(row));
    if (!changed.is_null()) json["ranks"].push_back(std::move(changed));
  }
  return text_of(json) + "\n";
}

/// The line, unless the file would become larger than `most` by it.
std::string HistoryWriter::take(std::string line, uint64_t most) {
  if (line.size() > most - std::min(bytes_, most)) return "";
  bytes_ += line.size();
  return line;
}

Result<History> History::read(std::string text) {
  History made;
  made.text_ = std::move(text);
  CORRO_TRY(check_version(made.line_at(0)));
  State state;
  size_t lines = 0;
  while (made.advance(state, UnixTime::max())) {
    if (lines++ == 0) made.begin_ = state.time;
    const size_t kept = made.states_.empty() ? 0 : made.states_.back().next + kBetweenStates;
    if (state.next >= kept) made.states_.push_back(state);
  }
  if (lines == 0) return Status(Code::kInvalidArgument, "its first line is damaged");
  made.end_ = state.time;
  if (state.next == made.text_.size()) return made;
  const bool is_last = made.text_.find('\n', state.next) == std::string::npos;
  made.note_ = is_last ? "The last line of the history is cut off: its launcher was ended at once."
                       : fmt::format(
                             "Line {} of the history is damaged; what follows it is left "
                             "out.",
                             lines + 1);
  return made;
}

/// Without its end; a line without an end is none.
std::string_view History::line_at(size_t at) const {
  const size_t end = text_.find('\n', at);
  return end == std::string::npos ? std::string_view()
                                  : std::string_view(text_).substr(at, end - at);
}

/// False: the line cannot be read, or tells of what came after `until`. Of one that cannot be read
/// the picture may have taken a part.
bool History::apply(State& state, std::string_view line, UnixTime until) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return false;
  if (const auto event = json.find("event"); event != json.end()) {
    auto happening = read_happening(*event);
    if (!happening || happening->at > until) return false;
    state.time = std::max(state.time, happening->at);
    state.board.hear(std::move(*happening));
    return true;
  }
  const auto time = time_of(json.value("time", Json()));
  if (!time || *time > until) return false;
  if (state.picture.started == UnixTime{}) state.picture.started = *time;
  const Json ranks = json.value("ranks", Json::array());
  if (!change(state.picture, json) || !change_ranks(state.picture.ranks, ranks)) return false;
  state.time = std::max(state.time, *time);
  state.board.show(state.picture, state.time);
  return true;
}

/// By one line. False: there is none before `until` that can be read.
bool History::advance(State& state, UnixTime until) const {
  const std::string_view line = line_at(state.next);
  if (line.empty() || !apply(state, line, until)) return false;
  state.next += line.size() + 1;
  return true;
}

Board History::at(UnixTime time) const {
  const auto after = std::ranges::upper_bound(states_, time, {}, &State::time);
  State state = after == states_.begin() ? *after : *std::prev(after);
  while (advance(state, time)) {
  }
  return std::move(state.board);
}

}  // namespace corro::dashboard
