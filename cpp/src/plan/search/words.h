// What a decision says of itself, in words.
#pragma once

#include <optional>
#include <string>

#include "plan/search/decision.h"

namespace corro::plan {

/// "tp 8, pp 16, dp 8, micro-batch 1 x 192, interleave 2, ZeRO 1".
[[nodiscard]] std::string describe(const JobShape& shape);
/// "tp 8, zero 1"; "none".
[[nodiscard]] std::string describe(const Pins& pins);
/// What takes most after computing, or the memory that forces recomputing.
[[nodiscard]] std::string what_limits(const Candidate& candidate);
/// One sentence: where the best gains, and where it pays.
[[nodiscard]] std::string why_better(const Candidate& best, const std::optional<Candidate>& other);

}  // namespace corro::plan
