// The Python stacks of a job's ranks, for people: `corro stacks`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/traceback.h"

namespace corro::diagnosis {

/// What one thread does. Innermost frame first.
struct ThreadStack {
  bool main = false;
  std::vector<Frame> frames;
};

/// Reads what faulthandler writes of all threads, and what `py-spy dump` prints. The text is
/// foreign: any bytes. Empty if there is no thread in it. Pure.
[[nodiscard]] std::vector<ThreadStack> parse_stacks(std::string_view text);

/// What one rank has answered.
struct RankStacks {
  int rank = -1;
  std::string host;     ///< "": there is only one.
  std::string text;     ///< For parse_stacks().
  std::string missing;  ///< Why there is none.
};

/// All of them, those of ranks that do the same once. Pure.
[[nodiscard]] std::string format_stacks(std::span<const RankStacks> ranks);

}  // namespace corro::diagnosis
