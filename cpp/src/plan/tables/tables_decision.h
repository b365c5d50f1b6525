// Which table is where, on how many servers, and how stale rows may be.
//
//   CORRO_ASSIGN(const TablesDecision decision, decide_tables(tables, cluster));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/cluster/cluster.h"
#include "plan/tables/tables_file.h"

namespace corro::plan {

struct TableDecision {
  std::string name = {};
  TablePlace place = TablePlace::kServed;
  double seconds = 0;   ///< Of a step, in sync mode.
  double bytes = 0;     ///< On all servers together, or on each rank.
  double distinct = 0;  ///< Ids of a rank in a step that differ.
  std::string why = {};
};

struct TablesDecision {
  uint32_t ranks = 0;
  uint32_t servers = 0;     ///< 0: no table is served.
  uint32_t copies = 0;      ///< Servers that have each row.
  uint32_t staleness = 0;   ///< Pushes that a rank may be ahead of their answers; 0: sync mode.
  double seconds = 0;       ///< Of a step in sync mode: the sum of all tables.
  double server_bytes = 0;  ///< On each server.
  double rank_bytes = 0;
  std::string why_servers = {};
  std::string why_staleness = {};
  std::vector<TableDecision> tables = {};  ///< In the order of the file.
};

/// Decides by the times of table_times.h. For each number of servers every table is where it takes
/// less; where ranks lack memory for all that are better off on them, those stay that save most
/// for each byte. Of the numbers of servers the least wins with which a step takes at most one
/// part in a hundred longer than with the best.
///
/// INVALID_ARGUMENT if servers' memory is not known; FAILED_PRECONDITION if tables do not fit.
[[nodiscard]] Result<TablesDecision> decide_tables(const Tables& tables, const Cluster& cluster);

}  // namespace corro::plan
