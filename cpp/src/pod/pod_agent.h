// PodAgent: the agent of a pod, which is the first process of its container.
//
//   working    its command runs, if it has one of its own; it dials the head and does what that
//              says: a session for each ATTEND (session.h)
//   asking     a launcher's command has failed: should it run once more? PROCEED leads back,
//              DISMISS ends the pod with the command's status. One that waits for a host that has
//              vanished (HOST_LOST) is stopped after a while, and so is one whose head was lost;
//              what was stopped has failed, whatever its status is
//   ending     SIGTERM, DISMISS or the head's loss: command and sessions' processes got SIGTERM, or
//              are given up; it ends when they have ended, at the latest after what Kubernetes
//              gives
//
// Without a command, or in a CorroJob, whose command the ranks run, it waits to be commanded. A
// head that was lost is dialled for 10 s by whoever was commanded or has a command, without an end
// by others, and by a launcher, whose pod's end would be counted by the Job that has it: after 10 s
// it stops its command, and asks the head that comes.
#pragma once

#include <string>
#include <vector>

#include "pod/settings.h"

namespace corro::pod {

struct PodAgentOptions {
  PodSettings settings;
  std::vector<std::string> command;  ///< After `--`; may be empty.
  std::string program;               ///< The path of this one.
  std::string version;
};

/// Runs it to its end; returns the container's status: the command's, that of DISMISS, 128 +
/// signal, 75 after the head's loss, 2 if it cannot begin. The calling process has no threads.
[[nodiscard]] int run_pod_agent(const PodAgentOptions& options);

/// Whether a launcher's command goes on by itself when it loses hosts, as an elastic horovodrun
/// does. Pure.
[[nodiscard]] bool survives_losses(const std::vector<std::string>& command);

}  // namespace corro::pod
