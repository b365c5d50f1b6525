// The launcher's own signals while a job runs.
#pragma once

#include <signal.h>

namespace corro::launch {

/// The signals that a job hears of, blocked; and the mask as it was, which is the ranks'.
struct JobSignals {
  sigset_t heard;
  sigset_t before;
};

/// Blocks what the launcher hears through a signalfd, and ignores what would end or stop it when a
/// reader or a terminal is gone. To be called before there are threads or children.
[[nodiscard]] JobSignals block_signals();

}  // namespace corro::launch
