// Answers in JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"
#include "http/pages.h"

namespace corro::dashboard {

/// One line of JSON. Texts that are no UTF-8 have replacement characters.
[[nodiscard]] http::Page page_of(const nlohmann::ordered_json& json, int status = 200);
/// `{"error": ...}`, with the status of HTTP that fits the failure.
[[nodiscard]] http::Page page_of(const Status& failure);

}  // namespace corro::dashboard
