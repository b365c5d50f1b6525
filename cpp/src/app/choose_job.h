// Which running job a command means: `corro stacks`, `trace`, `status`, `top`, `dash`, `servers`.
#pragma once

#include <string>
#include <vector>

#include "launch/control_socket.h"

namespace corro::app {

/// For an answer. A launcher answers at once, but may be stopped.
inline constexpr Duration kAnswerPatience = std::chrono::seconds(10);

/// The job of `jobs` with this id or launcher's pid; with "" the only one. NOT_FOUND says which
/// there are, each as `command` would be typed for it: "corro stacks 4711".
[[nodiscard]] Result<launch::RunningJob> choose_job(const std::vector<launch::RunningJob>& jobs,
                                                    const std::string& wanted,
                                                    const std::string& command);

}  // namespace corro::app
