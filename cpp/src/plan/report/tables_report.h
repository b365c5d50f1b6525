// What was decided of tables, for people and for programs.
#pragma once

#include <string>

#include "plan/cluster/cluster.h"
#include "plan/tables/tables_decision.h"

namespace corro::plan {

/// Lines for a terminal: what to run, what it takes, and a row for each table with its reason.
[[nodiscard]] std::string format_tables(const Tables& tables, const TablesDecision& decision,
                                        const Cluster& cluster);
/// A document of JSON: docs/planner-inputs.md.
[[nodiscard]] std::string tables_to_json(const Tables& tables, const TablesDecision& decision);

}  // namespace corro::plan
