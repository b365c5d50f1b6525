// For tests: writes a model as a model file, so that the reader can be held against it.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/model/model.h"

namespace corro::plan {

/// Writes a model file. Fields that hold their default are left out. INVALID_ARGUMENT for a model
/// that read_model() would refuse.
[[nodiscard]] Result<std::string> write_model(const Model& model);

}  // namespace corro::plan
