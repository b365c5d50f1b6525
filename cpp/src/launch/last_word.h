// The last word on a job: how it ended, on the screen, for its caller and as an exit status.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/job_course.h"
#include "launch/job_output.h"
#include "launch/plan.h"

namespace corro::launch {

/// Of a job that has run. `places`: of its ranks, by rank; `took`: since its launcher was started.
/// Returns the exit status.
int say_result(const LaunchPlan& plan, JobCourse::Result result, const std::vector<size_t>& places,
               Duration took, JobOutput& output);
/// Of a job that has not begun. `asked`: the signal that has ended its start; none: `why` has.
int say_refused(const LaunchPlan& plan, const std::string& why, std::optional<int> asked,
                JobOutput& output);
/// Of a job whose only agent has ended before its time, with this status as from waitpid.
int say_killed(int status, JobOutput& output);

}  // namespace corro::launch
