// Asks a Python process from outside where it is, while it hangs.
//
// corro's Python side leaves a memfd named "corro-stack" in the process and lets faulthandler write
// the main thread's stack into it at ask_signal() (python/corro/_where.py): nothing of the user's
// runs. Without that memfd, which an exec takes away like the handler, nothing is sent.
#pragma once

#include <sys/types.h>

#include <csignal>

#include "diagnosis/traceback.h"
#include "io/fd.h"

namespace corro::agent {

/// The same on the Python side. SIGRTMAX is a call into the C library.
[[nodiscard]] inline int ask_signal() { return SIGRTMAX - 3; }

/// What was found at a process. Immutable.
struct Whereabouts {
  bool paused = false;  ///< Stopped by a signal or a debugger: it cannot answer.
  io::Fd stack;         ///< Where the answer will stand; invalid if there will be none.
};

/// Looks at the process, and asks its main thread for its stack if it is a Python process with
/// corro. Does not wait for the answer, which comes while the process runs on. `pid` has to be this
/// process's child, not reaped, or a descendant of one.
[[nodiscard]] Whereabouts ask_where(pid_t pid);

/// Reads the answer: the frame of the user's code with its source line; file "" if there is none
/// (yet). Never blocks.
[[nodiscard]] diagnosis::Frame read_where(const Whereabouts& whereabouts);

}  // namespace corro::agent
