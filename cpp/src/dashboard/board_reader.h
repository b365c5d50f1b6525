// Reads what board_text.h has written: `corro status` and `corro top` show a job that another
// process runs. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "dashboard/board.h"

namespace corro::dashboard {

/// A board as it was when it was written down.
struct BoardCopy {
  JobPicture picture = {};  ///< `lost` is not written down, and 0.
  std::vector<Happening> happenings = {};
  std::vector<StepPoint> steps = {};
  UnixTime now{};
};

/// INVALID_ARGUMENT, in one line, if the text is not of write_job().
[[nodiscard]] Result<BoardCopy> read_job(std::string_view text);

}  // namespace corro::dashboard
