// What to do about a failure, in one line.
#pragma once

#include <span>
#include <string>

#include "diagnosis/verdict.h"

namespace corro::diagnosis {

/// Returns the line for the culprit of `verdict`, of which `end` is known; `ends` are all ranks'.
/// Pure.
[[nodiscard]] std::string advise(const RankEnd& end, const Verdict& verdict,
                                 std::span<const RankEnd> ends);

}  // namespace corro::diagnosis
