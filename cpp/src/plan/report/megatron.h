// A decision as flags of Megatron-LM.
#pragma once

#include <string>

#include "plan/report/decision_file.h"

namespace corro::plan {

/// The flags' names are those of megatron/training/arguments.py and of the configurations it reads
/// in this version.
inline constexpr std::string_view kMegatronVersion = "Megatron Core 0.20";

/// One flag a line, as a shell reads it. What Megatron cannot do, or does otherwise, is a line that
/// begins with "# ". The model's own flags beyond layers and sequence are not in a decision.
[[nodiscard]] std::string export_megatron(const DecisionFile& file);

}  // namespace corro::plan
