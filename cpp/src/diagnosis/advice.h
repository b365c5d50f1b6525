// What to do about a failure, in one line.
#pragma once

#include <string>

#include "diagnosis/verdict.h"

namespace corro::diagnosis {

/// Returns the line for the culprit of `verdict`, of which `end` is known. Pure.
[[nodiscard]] std::string advise(const RankEnd& end, const Verdict& verdict);

}  // namespace corro::diagnosis
