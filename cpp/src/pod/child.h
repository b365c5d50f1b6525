// A process that has the caller's streams, as it would have them without the caller.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace corro::pod {

/// Starts the words as a program, which is looked up on PATH, with this signal mask. NOT_FOUND,
/// PERMISSION_DENIED, ... if it cannot be executed.
[[nodiscard]] Result<pid_t> start_child(std::vector<std::string> words, const sigset_t& mask);

/// The first file of this name on PATH that can be executed; the name itself if it has a slash or
/// there is none.
[[nodiscard]] std::string find_on_path(const std::string& name);

/// A status of waitpid() as a shell says it: 128 + the signal's number.
[[nodiscard]] int shell_status(int status);

}  // namespace corro::pod
