// `corro run --on kubernetes`: makes a CorroJob, and stays with it as `corro run` does at home.
//
//   creating    the folder is read and the object is made; a mistake in it is said in the API
//               server's words. A signal ends this at once, and nothing is left behind
//   starting    the reasons why it does not run yet are shown as they change
//   talking     one head after the other: it gets the folder, if there is one, and its log is
//               shown. A folder that cannot come before ranks have run ends the job; nothing else
//               that fails here does
//   ending      a signal: the job is deleted, so its pods are asked to end; the log goes on meanwhile
//   over        the job has ended, or is gone: the exit status of its ranks is this program's
//
// A second signal leaves at once. Who is killed leaves the job as it is.
#pragma once

#include <csignal>

#include "kube/client/client.h"
#include "kube/user/manifest.h"
#include "kube/user/run_view.h"

namespace corro::kube {

/// Blocks until the job is over; returns the exit status. Every thread of the process has blocked
/// `signals`, which are those that ask for the end.
[[nodiscard]] int run_on_cluster(Client& client, const ClusterRun& run, const RunManner& manner,
                                 const sigset_t& signals);

}  // namespace corro::kube
