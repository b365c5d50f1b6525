// What an exception means to a caller that gets codes.
#pragma once

#include <exception>

#include "base/status.h"

namespace corro {

/// RESOURCE_EXHAUSTED for an exhausted heap; else INTERNAL, with what the exception says.
[[nodiscard]] Status status_of(const std::exception& thrown);

}  // namespace corro
