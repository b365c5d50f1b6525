// Asks a Python process from outside where it is, while it hangs.
//
// corro's Python side leaves a memfd named "corro-stack" in the process and lets faulthandler write
// the main thread's stack into it at ask_signal() (python/corro/_where.py), and those of all
// threads into "corro-threads" at the signal below it: nothing of the user's runs. Without that
// memfd, which an exec takes away like the handler, nothing is sent.
#pragma once

#include <sys/types.h>

#include <csignal>

#include "diagnosis/traceback.h"
#include "io/fd.h"

namespace corro::agent {

/// The same on the Python side. SIGRTMAX is a call into the C library.
[[nodiscard]] inline int ask_signal() { return SIGRTMAX - 3; }
[[nodiscard]] inline int ask_threads_signal() { return SIGRTMAX - 4; }

/// What was found at a process. Immutable.
struct Whereabouts {
  bool paused = false;  ///< Stopped by a signal or a debugger: it cannot answer.
  io::Fd stack;         ///< Where the answer will stand; invalid if there will be none.
  off_t begin = 0;      ///< Of the answer in it.
};

/// Looks at the process, and asks its main thread for its stack if it is a Python process with
/// corro. Does not wait for the answer, which comes while the process runs on. `pid` has to be this
/// process's child, not reaped, or a descendant of one.
[[nodiscard]] Whereabouts ask_where(pid_t pid);
/// The same for the stacks of all its threads. May be asked again and again.
[[nodiscard]] Whereabouts ask_threads(pid_t pid);
/// Whether it would answer that if it were not stopped.
[[nodiscard]] bool answers(pid_t pid);

/// Reads the answer: the frame of the user's code with its source line; file "" if there is none
/// (yet). Never blocks.
[[nodiscard]] diagnosis::Frame read_where(const Whereabouts& whereabouts);
/// The answer as it is now, at most 256 KiB of it: it is written bit by bit.
[[nodiscard]] std::string read_threads(const Whereabouts& whereabouts);

}  // namespace corro::agent
