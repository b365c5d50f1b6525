// The agent: the ranks of one host as processes. It starts them, carries their output while the
// commander gives credit, reaps them, and does what its commander says (messages.h). What follows
// from what, its course knows (agent_course.h); this carries it out.
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
