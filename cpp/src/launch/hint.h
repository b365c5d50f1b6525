// A hint about the command line of a job that has failed.
#pragma once

#include <string>

#include "diagnosis/traceback.h"
#include "launch/plan.h"

namespace corro::launch {

/// One line, or "". Of an option of `corro run` behind the program, if the program complains of it,
/// or if it is a number of ranks and none was given in front: else the program may have options of
/// these names. And of the interpreter, if another one than `corro run` takes lacks a module. Pure.
[[nodiscard]] std::string hint_about(const LaunchPlan& plan, const diagnosis::Crash& crash);

}  // namespace corro::launch
