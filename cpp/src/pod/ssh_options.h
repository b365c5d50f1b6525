// The command line of `corro rsh`, which is that of ssh: mpirun, Hydra and Horovod write it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace corro::pod {

struct SshRequest {
  std::string host;       ///< As it was given: "user@name.domain".
  std::string command;    ///< For a shell there: the words, with blanks between them.
  bool no_input = false;  ///< -n.
};

/// Reads the words after the program's name. What says how to connect is read and means nothing
/// here; INVALID_ARGUMENT names an option that asks for more than a command (-f, -L, -N), one that
/// ssh has not, or what is missing. Pure.
[[nodiscard]] Result<SshRequest> parse_ssh(const std::vector<std::string>& arguments);

}  // namespace corro::pod
