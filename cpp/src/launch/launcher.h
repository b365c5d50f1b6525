// Runs one job: says the agent what to start, shows the ranks' output, passes the user's signals
// on, and has all ranks stopped when one fails.
//
//   meeting    where other hosts take part: until all is known that their ranks need (meeting.h)
//   running    one loop over the agents' messages, signals and timers. What follows from them is
//              JobCourse's; it is carried out here. While the job is being ended, the ranks' stderr
//              is held back
//   fencing    no rank runs: the agents end what they left running, half a second later if nobody
//              asked for the end, and send the output that is still on its way
//   ended      the verdict is made and printed
//
// A standalone coordinator is a launcher whose agents dial it (agents.h). It leads, or ends at once,
// and leaves the job to whoever leads then (lead.h). It may go on with a job that another one has
// led: there is no meeting then.
//
// While the screen takes nothing, the agents get no credit, and the ranks' pipes hold them back.
#pragma once

#include <optional>
#include <string>

#include "launch/job_record.h"
#include "launch/lead.h"
#include "launch/plan.h"
#include "launch/reception.h"

namespace corro::launch {

/// What a standalone coordinator has beside what every launcher has.
struct Standalone {
  Lead& lead;
  Reception& reception;
  wire::Secret secret{};                           ///< Of the ranks; every coordinator has it.
  std::optional<JobRecord> record = std::nullopt;  ///< Of a job that goes on.
};
/// In the place of a status: a coordinator has lost its lead.
inline constexpr int kLeadLost = -1;

/// Runs the job to its end and returns the exit status for the shell: the culprit's, 124 after
/// --timeout, 128 + signal if the user stopped it, 2 if the program could not be started. The
/// calling process has no threads, and runs nothing else. Leaves no process behind.
[[nodiscard]] int run_job(const LaunchPlan& plan, const std::string& version,
                          Standalone* standalone = nullptr);

}  // namespace corro::launch
