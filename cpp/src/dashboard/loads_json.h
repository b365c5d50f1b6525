// What goes over links, and what tables take, as JSON: with rates for the page, without them in a history.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "dashboard/board.h"

namespace corro::dashboard {

/// Of at most 400 links, those over which most goes.
[[nodiscard]] nlohmann::ordered_json json_of_links(const Board& board);
[[nodiscard]] nlohmann::ordered_json json_of_tables(const Board& board);

/// For a line of a history: at most 64 links, those over which most goes.
[[nodiscard]] nlohmann::ordered_json history_of_links(const HostLinks& links);
[[nodiscard]] nlohmann::ordered_json history_of_tables(const std::vector<TablePart>& parts);

/// The fields `links` and `tables` of a line. False: such a line nobody has written.
[[nodiscard]] bool read_links(const nlohmann::ordered_json& line, std::vector<LinkOfMember>& links);
[[nodiscard]] bool read_tables(const nlohmann::ordered_json& line, std::vector<TablePart>& parts);

}  // namespace corro::dashboard
