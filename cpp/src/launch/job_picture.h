// What the dashboard shows of a job (dashboard/picture.h), made of its course. Pure.
#pragma once

#include "dashboard/picture.h"
#include "launch/events.h"
#include "launch/job_course.h"
#include "launch/job_record.h"
#include "launch/plan.h"

namespace corro::launch {

/// The job as it is now. Places in which no process was ever started are left out.
[[nodiscard]] dashboard::JobPicture picture_of(const JobCourse& course, const LaunchPlan& plan,
                                               UnixTime started);
/// The same job once it is over.
[[nodiscard]] dashboard::JobPicture picture_of_end(dashboard::JobPicture last,
                                                   const Ending& ending);
/// `now`: when it was announced.
[[nodiscard]] dashboard::Happening happening_of(const Event& event, UnixTime now);

}  // namespace corro::launch
