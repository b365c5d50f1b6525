// A job as lines of a terminal: what `corro status` prints, and what `corro top` redraws. Pure.
//
//   for (const std::string& line : job_lines(read_job(answer).value(), {.width = 80})) ...
//
// The sentence stands first; then facts, what ranks log, the ranks, and the last events. Text of others is made
// harmless (terminal_text.h). No line is wider than the terminal: columns are cut.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "dashboard/board_reader.h"

namespace corro::dashboard {

/// No bound, for a text that goes to a file.
inline constexpr size_t kUnbounded = 100'000;

struct ScreenOptions {
  size_t width = kUnbounded;   ///< In columns.
  size_t height = kUnbounded;  ///< In lines. Ranks for which it has no room are counted.
  size_t scroll = 0;           ///< So many ranks are above; less if that leaves room below.
  bool colour = false;         ///< SGR sequences; without them signs say the same.
  std::string footer = {};     ///< The last line; "": none.
};

/// If not all ranks have room, those come first that matter most: failed, awaited, paused, the
/// slowest. Without a bound they are in the order of their places.
[[nodiscard]] std::vector<std::string> job_lines(const BoardCopy& job,
                                                 const ScreenOptions& options);

/// "step 192 of 1000 [###.............] 19 %, about 12 min left   2.3 steps/s   loss 0.3": how far the
/// job is, for the bottom of a terminal. "": no rank has told a step.
[[nodiscard]] std::string progress_line(const BoardCopy& job);

/// How many ranks can be above at most, on a screen of that size.
[[nodiscard]] size_t most_scroll(const BoardCopy& job, const ScreenOptions& options);
/// Ranks that have room at once.
[[nodiscard]] size_t ranks_at_once(const BoardCopy& job, const ScreenOptions& options);

/// Steps a second over the last seconds in which somebody has looked; none: not known.
[[nodiscard]] std::optional<double> step_rate(const std::vector<StepPoint>& steps);

}  // namespace corro::dashboard
