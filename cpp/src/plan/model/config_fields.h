// Fields of a config.json that corro does not count: those that say nothing about how large a model
// is, and all others, which are named to the user.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/json.h"

namespace corro::plan {

/// Names of the fields of `config` that may change the model's size and that are not counted:
/// not in `counted`, not among the others that config.cc reads and those known to change nothing,
/// and not of a value that means "no" (null, false, 0, 1 of a step, "default", an empty text or
/// list). In the order of the alphabet.
[[nodiscard]] std::vector<std::string> uncounted_fields(
    const Json& config, const std::vector<std::string_view>& counted);

/// Whether an activation is the gate of a feed-forward layer in the models that use it: SiLU and
/// what has GLU in its name.
[[nodiscard]] bool is_gating_activation(std::string_view name);

}  // namespace corro::plan
