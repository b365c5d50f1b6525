// What a board says to programs. Fields and metrics: docs/dashboard.md. Pure.
#pragma once

#include <string>

#include "dashboard/board.h"

namespace corro::dashboard {

/// One JSON object: the picture, what has happened, and steps over time. Texts that are no UTF-8 have
/// replacement characters.
[[nodiscard]] std::string write_job(const Board& board, UnixTime now);

/// As Prometheus reads it. Ranks are no label: a job may have thousands.
[[nodiscard]] std::string write_metrics(const Board& board, UnixTime now);

}  // namespace corro::dashboard
