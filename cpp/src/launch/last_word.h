// The last word on a job: how it ended, on the screen, for its caller and as an exit status.
#pragma once

#include <optional>

#include "launch/job.h"
#include "launch/job_orders.h"
#include "launch/job_record.h"

namespace corro::launch {

/// `killed`: as Agents::end() says it, if the job's only agent has ended before its time. Returns
/// how the job has ended; none: it has not begun, since some hosts cannot be used, and is to begin
/// anew with the plan of Job::others.
std::optional<Ending> say_last_word(Job& job, JobOrders& orders, std::optional<int> killed);

}  // namespace corro::launch
