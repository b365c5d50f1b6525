// The pages of an inspection (docs/dashboard.md).
#pragma once

#include "dashboard/inspection.h"
#include "http/pages.h"

namespace corro::dashboard {

/// POST: has the ranks asked. 202, or 409 and why not.
[[nodiscard]] http::Page ask_page(Inspection& inspection, Inspected what, const http::Query& query,
                                  Time now, UnixTime clock);
/// GET: how far it is, and stacks themselves.
[[nodiscard]] http::Page answer_page(Inspection& inspection, Inspected what, Time now);
/// The last trace, to be kept as a file; 404 if there is none.
[[nodiscard]] http::Page trace_file_page(const Inspection& inspection);

}  // namespace corro::dashboard
