// What make_plan() needs from outside, as this process finds it.
#pragma once

#include <string>

#include "launch/plan.h"

namespace corro::launch {

/// Of this machine, now. `own_directory`: of the program `corro`. Hosts are the caller's to find.
[[nodiscard]] PlanInputs inputs_from_here(const Variables& environment,
                                          const std::string& own_directory);

/// Random: 16 hexadecimal digits.
[[nodiscard]] std::string random_job_id();

}  // namespace corro::launch
