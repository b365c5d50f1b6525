#include "dashboard/loads_json.h"

#include <algorithm>

#include "dashboard/json_fields.h"

namespace corro::dashboard {
namespace {

constexpr size_t kMostShown = 400;
constexpr size_t kMostKept = 64;

Json host_or_null(const std::string& host) { return host.empty() ? Json() : Json(host); }

Json json_of(const HostLink& link) {
  return {{"from", link.from}, {"to", host_or_null(link.to)}, {"bytes", link.bytes}};
}

Json json_of(const TablePart& part) {
  return {{"table", part.table},
          {"server", part.server},
          {"host", part.host},
          {"rows", part.rows},
          {"bytes", part.bytes},
          {"shards", part.shards},
          {"steps", part.steps},
          {"pulls", part.pulls},
          {"pulled_rows", part.pulled_rows},
          {"pushes", part.pushes},
          {"pushed_rows", part.pushed_rows},
          {"pull_p99_seconds", std::chrono::duration<double>(part.pull_p99).count()}};
}

/// The process is not known any more: each host counts as one.
bool read_link(const Json& json, LinkOfMember& link) {
  const bool is_read = json.is_object() && read_text(json, "from", link.from) &&
                       read_text(json, "to", link.to) &&
                       read_number(json, "bytes", link.bytes, uint64_t{0});
  link.member = link.from;
  return is_read;
}

bool read_p99(const Json& json, Duration& p99) {
  constexpr double kMostSeconds = 1e9;
  std::optional<double> seconds;
  if (!read_real(json, "pull_p99_seconds", seconds)) return false;
  if (seconds && !(*seconds >= 0 && *seconds <= kMostSeconds)) return false;
  p99 = std::chrono::round<Duration>(std::chrono::duration<double>(seconds.value_or(0)));
  return true;
}

bool read_part(const Json& json, TablePart& part) {
  constexpr uint64_t kNone = 0;
  return json.is_object() && read_text(json, "table", part.table) &&
         read_number(json, "server", part.server, 0) && read_text(json, "host", part.host) &&
         read_number(json, "rows", part.rows, kNone) &&
         read_number(json, "bytes", part.bytes, kNone) &&
         read_number(json, "shards", part.shards, kNone) &&
         read_number(json, "steps", part.steps, kNone) &&
         read_number(json, "pulls", part.pulls, kNone) &&
         read_number(json, "pulled_rows", part.pulled_rows, kNone) &&
         read_number(json, "pushes", part.pushes, kNone) &&
         read_number(json, "pushed_rows", part.pushed_rows, kNone) && read_p99(json, part.pull_p99);
}

template <typename Item, typename Read>
bool read_list(const Json& line, const char* name, std::vector<Item>& items, const Read& read) {
  const Json* list = field_of(line, name);
  if (list == nullptr) return true;
  items.clear();
  return list->is_array() && std::ranges::all_of(*list, [&](const Json& one) {
           return read(one, items.emplace_back());
         });
}

}  // namespace

Json json_of_links(const Board& board) {
  Json json = Json::array();
  for (const HostLink& one : board.links().busiest(kMostShown)) {
    Json link = json_of(one);
    link["bytes_per_second"] = one.bytes_per_second;
    json.push_back(std::move(link));
  }
  return json;
}

Json json_of_tables(const Board& board) {
  Json json = Json::array();
  for (const TablePart& one : board.picture().tables) {
    Json part = json_of(one);
    for (const char* what : {"pulls", "pulled_rows", "pushes", "pushed_rows"})
      part[std::string(what) + "_per_second"] = board.table_rates().of(name_of(one, what));
    json.push_back(std::move(part));
  }
  return json;
}

Json history_of_links(const HostLinks& links) {
  Json json = Json::array();
  for (const HostLink& one : links.busiest(kMostKept)) json.push_back(json_of(one));
  return json;
}

Json history_of_tables(const std::vector<TablePart>& parts) {
  Json json = Json::array();
  for (const TablePart& one : parts) json.push_back(json_of(one));
  return json;
}

bool read_links(const Json& line, std::vector<LinkOfMember>& links) {
  return read_list(line, "links", links, read_link);
}

bool read_tables(const Json& line, std::vector<TablePart>& parts) {
  return read_list(line, "tables", parts, read_part);
}

}  // namespace corro::dashboard
