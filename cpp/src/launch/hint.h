// A hint for who has written options of `corro run` behind the program.
#pragma once

#include <string>

#include "launch/options.h"
#include "launch/traceback.h"

namespace corro::launch {

/// One line for a job that has failed: an option of `corro run` behind the program, if the program
/// complains of it, or if it is a number of ranks and none was given in front. "" else: the program
/// may have options of these names. Pure.
[[nodiscard]] std::string hint_about(const RunOptions& options, const Crash& crash);

}  // namespace corro::launch
