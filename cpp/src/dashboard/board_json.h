// Rows, events and boards as JSON objects, and back. Fields: docs/dashboard.md. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "dashboard/board.h"

namespace corro::dashboard {

[[nodiscard]] nlohmann::ordered_json json_of(const RankRow& row);
[[nodiscard]] nlohmann::ordered_json json_of(const Happening& happening);
/// The picture, what has happened, and steps and metrics over time, as /api/job has them at this time.
[[nodiscard]] nlohmann::ordered_json json_of(const Board& board, UnixTime now);
/// The plan that ranks have told of (JobPicture::plan); null: it is none, or is damaged.
[[nodiscard]] nlohmann::ordered_json plan_or_null(const std::string& text);
/// One line of text. Texts that are no UTF-8 have replacement characters.
[[nodiscard]] std::string text_of(const nlohmann::ordered_json& json);

[[nodiscard]] double seconds_of(UnixTime time);
/// Of seconds since 1970; none: it is no number of this era.
[[nodiscard]] std::optional<UnixTime> time_of(const nlohmann::ordered_json& seconds);

/// The place of a row. None: it is none of a job's.
[[nodiscard]] std::optional<int> read_place(const nlohmann::ordered_json& row);
/// Changes the fields of a row that this object has. False: it is none, or has a field of another
/// kind.
[[nodiscard]] bool change(RankRow& row, const nlohmann::ordered_json& fields);
/// The same of a picture, but for its ranks.
[[nodiscard]] bool change(JobPicture& picture, const nlohmann::ordered_json& fields);
/// None: the object is no event.
[[nodiscard]] std::optional<Happening> read_happening(const nlohmann::ordered_json& json);

}  // namespace corro::dashboard
