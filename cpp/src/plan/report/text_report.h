// A decision as text for a terminal, at most 100 columns wide.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/report/decision_file.h"
#include "plan/report/table.h"

namespace corro::plan {

/// What is read in ten seconds: decisions, predictions, proof, why. At most 25 lines.
[[nodiscard]] std::string format_decision(const DecisionFile& file, bool color);

/// Each term of the step time, memory by device and stage, layers and recompute, what is exchanged.
[[nodiscard]] std::string explain_decision(const DecisionFile& file);
/// The tables of explain_decision().
[[nodiscard]] std::vector<Table> explanation_of(const DecisionFile& file);

/// Two decisions side by side under the names of their files.
[[nodiscard]] std::string compare_decisions(const DecisionFile& a, std::string_view name_a,
                                            const DecisionFile& b, std::string_view name_b);

}  // namespace corro::plan
