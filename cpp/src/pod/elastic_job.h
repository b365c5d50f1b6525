// Head and agents of an elastic CorroJob, whose workers come and go while ranks run: the head is a
// coordinator (coordinator/coordinator.h), and the agent of each worker dials it, as on any host.
//
//   leading    a process below the head leads the job, whenever no other head does; one that is
//              killed, as for its memory, is followed by another one
//   over       the job has ended, and the head ends with its status: with 75 where too few workers
//              are left, since all were lost or drained. Its termination message says which it is
//   leaving    SIGTERM: this pod is to go, and the job is not. What leads is killed; the ranks step
//              on, and the next head's process leads them
//
// A worker's member is its host's name, and its pod's generation says which agent is the newer one.
// The agent knows the command, as the kubelet has expanded it; the head knows none.
#pragma once

#include "pod/head.h"
#include "pod/pod_agent.h"

namespace corro::pod {

/// Returns the job's exit status or 75, 128 + signal if this head was asked to go, or 2 if it cannot begin. The calling process has no threads.
[[nodiscard]] int run_elastic_head(const HeadOptions& options);

/// Runs a worker's agent until the job is over, or the host has left it after SIGTERM (0), or nobody
/// leads for ten minutes (75); 2 if it cannot begin. The calling process has no threads.
[[nodiscard]] int run_elastic_agent(const PodAgentOptions& options);

}  // namespace corro::pod
