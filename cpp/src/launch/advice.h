// What to do about a failure, in one line.
#pragma once

#include <string>

#include "launch/verdict.h"

namespace corro::launch {

/// Returns the line for the culprit of `verdict`, of which `end` is known. Pure.
[[nodiscard]] std::string advise(const RankEnd& end, const Verdict& verdict);

}  // namespace corro::launch
