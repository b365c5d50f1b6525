// Codecs as C gives them.
#pragma once

#include <memory>

#include "base/status.h"
#include "collective/operation/codec.h"
#include "corro/corro.h"

namespace corro::api {

/// Checked and copied; null for NULL.
[[nodiscard]] Result<std::shared_ptr<const collective::Codec>> read_codec(const corro_codec* given);

}  // namespace corro::api
