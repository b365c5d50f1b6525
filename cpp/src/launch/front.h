// The process that the user sees, and the supervisor behind it.
//
// `corro run` splits in two. The front is the process that was started: it passes signals on and
// ends with the supervisor's status. The supervisor is the parent of the workers, in a process
// group of its own so that keys pressed at the terminal reach the front only. Each notices the
// other's death and adopts the orphans of those below it (PR_SET_CHILD_SUBREAPER), so one of them
// is always left to end whatever the workers have started, also after kill -9 of the other.
#pragma once

#include <signal.h>

#include <functional>

namespace corro::launch {

/// What the supervisor gets from the front.
struct FrontLink {
  int signals = -1;      ///< One byte for each signal sent to the front; end of file: it is gone.
  sigset_t signal_mask;  ///< As it was when the program started: the workers' mask.
};

/// Forks; runs `supervise` in the child, which ends with the returned status, and stands in front
/// of it. Returns the exit status of the program, in the front only.
[[nodiscard]] int run_behind_front(const std::function<int(const FrontLink&)>& supervise);

}  // namespace corro::launch
