// The agent: the ranks of one host as processes. It starts them, carries their output while the
// commander gives credit, reaps them, and does what its commander says (messages.h). Its course
// decides what follows from what (agent_course.h). The agent itself (agent.cc) turns the loop, and
// each of its parts does one thing:
//
//   station.h          holds what the parts share: commander, loop, course, ranks
//   following.h        hears a commander, and knows how long the agent goes on without one
//   rank_starts.h      starts ranks, with their call
//   rank_inquiry.h     asks ranks what their Python code does
//   rank_streams.h     carries output and input, as there is credit
//   worker_service.h   talks with the engines of ranks
//   reaper.h           reaps processes, and finds out how ranks have ended
//   course_orders.h    carries out the orders of the course
//
// Three more parts know no rank: branches.h, sync_target.h, surveyor.h.
//
// When the commander is gone it kills everything and returns, in whatever state it is. One on
// another host takes a commander of whom it hears nothing for 10 s for gone (silence.h). One that
// dials its commander dials another one then, and its ranks go on meanwhile (commander.h).
#pragma once

#include <signal.h>

#include <string>

#include "agent/commander.h"
#include "io/fd.h"

namespace corro::agent {

/// Runs an agent to its end; returns the exit status of its process. To be called in a process of
/// its own, in which SIGCHLD is blocked and SIGPIPE ignored. Ranks get `worker_mask` as their
/// signal mask. `guard` ends with the process that guards this one (guarded_agent.h); none: the
/// commander is on this host.
[[nodiscard]] int run_agent(Commander commander, const sigset_t& worker_mask,
                            const std::string& version, io::Fd guard = {});

}  // namespace corro::agent
