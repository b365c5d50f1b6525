// /api/logs: lines of ranks' logs as JSON. Parameters and fields: docs/dashboard.md.
#pragma once

#include "dashboard/log_reader.h"
#include "http/pages.h"

namespace corro::dashboard {

/// Status 400 for a parameter that is none, 404 where there is no such log; both say why. Blocks as
/// `reader` does.
[[nodiscard]] http::Page logs_page(LogReader& reader, const http::Query& query);

}  // namespace corro::dashboard
