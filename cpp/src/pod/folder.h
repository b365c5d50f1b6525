// The folder of `corro run --on kubernetes --sync`, in the head of its job. The user's program
// brings it by `corro receive` in the head's container; from there on it is as at home: the head
// brings it to the workers.
//
//   waiting    the head does nothing before the folder is there
//   receiving  `corro receive` says over its standard streams what is missing, as an agent does
//   there      a mark beside the logs says so; it is gone with the head's pod
//
// A head that replaces another one of an elastic job does not wait for ever: the ranks, which have
// the folder, need somebody who leads. Without it, a worker that comes later gets no folder.
#pragma once

#include "pod/settings.h"

namespace corro::pod {

/// Blocks until the folder is there. True once it is; false after twenty seconds in an elastic
/// job's head that replaces another. CANCELLED with `signal` set after SIGTERM or SIGINT.
[[nodiscard]] Result<bool> wait_for_folder(const PodSettings& settings, int& signal);

/// `corro receive`: takes the folder from standard input, and answers on standard output. Returns 0
/// once all of it is there, else 1, and says why on stderr.
[[nodiscard]] int receive_folder(const PodSettings& settings);

}  // namespace corro::pod
