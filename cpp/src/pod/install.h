// `corro install DIR`: the program and its name `ssh`, in a folder that the pod's containers share.
#pragma once

#include <string>

#include "base/status.h"

namespace corro::pod {

/// Copies the running program to `folder`/corro and makes the link `folder`/ssh to it; what was
/// there is replaced at once. The failure names the file. Blocks.
[[nodiscard]] Status install_program(const std::string& folder);

}  // namespace corro::pod
