// A session: a process of its own below a pod's agent, for one remote shell. It dials the head, and
// is then the agent of agent/ on another host than its commander's: so it ends what it has started
// when the connection ends or nothing is heard, and by RELEASE leaves running what has detached.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>

#include "io/fd.h"
#include "pod/head_link.h"

namespace corro::pod {

/// Forks it. `guard`: a pipe that ends with the caller; `before`: the signal mask for what is
/// started; `forget` closes in the child what is the parent's alone. The caller has no threads.
[[nodiscard]] Result<pid_t> start_session(const HeadLink::Options& link, const io::Fd& guard,
                                          const sigset_t& before, const std::string& version,
                                          const std::function<void()>& forget);

}  // namespace corro::pod
