#include "plan/report/tables_report.h"

#include <fmt/format.h>

#include "plan/amounts.h"
#include "plan/json.h"
#include "plan/report/table.h"

namespace corro::plan {
namespace {

constexpr size_t kLabelWidth = 12;

void add_fact(std::string& text, std::string_view label, std::string_view value) {
  std::string_view shown = label;
  for (const std::string& line : wrapped(value, kReportColumns - kLabelWidth)) {
    text += fmt::format("{:<{}}{}\n", shown, kLabelWidth, line);
    shown = "";
  }
}

std::string servers_fact(const TablesDecision& decision) {
  if (decision.servers == 0) return fmt::format("none: {}", decision.why_servers);
  return fmt::format("{} (corro run -np {} --servers {} ...): {}", decision.servers, decision.ranks,
                     decision.servers, decision.why_servers);
}

std::string mode_fact(const TablesDecision& decision) {
  if (decision.staleness == 0) return fmt::format("sync: {}", decision.why_staleness);
  return fmt::format("bounded, staleness {}: {}", decision.staleness, decision.why_staleness);
}

std::string memory_fact(const TablesDecision& decision) {
  std::string ranks = fmt::format("{} on each rank", bytes_text(decision.rank_bytes));
  if (decision.servers == 0) return ranks;
  return fmt::format("{} on each server, {}", bytes_text(decision.server_bytes), ranks);
}

}  // namespace

std::string format_tables(const Tables& tables, const TablesDecision& decision,
                          const Cluster& cluster) {
  std::string text;
  add_fact(text, "tables",
           fmt::format("{}: {}, {} samples a step", tables.name,
                       counted(tables.tables.size(), "table"), integer_text(tables.batch)));
  add_fact(text, "machines",
           fmt::format("{}: {}, {}", cluster.name, counted(cluster.host_count(), "host"),
                       counted(decision.ranks, "rank")));
  add_fact(text, "servers", servers_fact(decision));
  add_fact(text, "mode", mode_fact(decision));
  add_fact(text, "a step",
           fmt::format("{} for tables, in sync mode", seconds_text(decision.seconds)));
  add_fact(text, "memory", memory_fact(decision));
  Table table{.head = {"table", "rows", "dim", "ids", "a step", "bytes", "placement", "why"}};
  for (size_t i = 0; i < decision.tables.size(); ++i) {
    const TableDecision& each = decision.tables[i];
    const TableNeed& need = tables.tables[i];
    table.rows.push_back({each.name, count_text(need.rows), integer_text(need.dim),
                          count_text(each.distinct), seconds_text(each.seconds),
                          bytes_text(each.bytes), std::string(name_of(each.place)), each.why});
  }
  table.note =
      "Ids: those of a rank in a step that differ. Bytes: on all servers together, or on each "
      "rank. "
      "Why: what the other placement would take.";
  return text + "\n" + table_to_text(table);
}

std::string tables_to_json(const Tables& tables, const TablesDecision& decision) {
  Json document = {{"corro_table_plan", 1},
                   {"name", tables.name},
                   {"ranks", decision.ranks},
                   {"servers", decision.servers},
                   {"copies", decision.copies},
                   {"mode", decision.staleness == 0 ? "sync" : "bounded"},
                   {"staleness", decision.staleness},
                   {"seconds", decision.seconds},
                   {"server_bytes", decision.server_bytes},
                   {"rank_bytes", decision.rank_bytes},
                   {"why_servers", decision.why_servers},
                   {"why_staleness", decision.why_staleness},
                   {"tables", Json::array()}};
  for (const TableDecision& each : decision.tables) {
    document["tables"].push_back({{"name", each.name},
                                  {"placement", name_of(each.place)},
                                  {"seconds", each.seconds},
                                  {"bytes", each.bytes},
                                  {"distinct", each.distinct},
                                  {"why", each.why}});
  }
  return document.dump(2) + "\n";
}

}  // namespace corro::plan
