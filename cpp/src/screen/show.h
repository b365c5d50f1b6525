// Which ranks' output goes to the screen: the value of --show, and --timestamps.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace corro::screen {

enum class ShowMode : uint8_t {
  kDifferent,  ///< Rank 0 as it is, lines of other ranks where they differ.
  kErrors,     ///< The same, of stderr only.
  kAll,        ///< Every line of every rank, with its prefix.
  kRanks,      ///< Every line of the listed ranks.
};

struct Show {
  ShowMode mode = ShowMode::kDifferent;
  std::vector<int> ranks;   ///< kRanks only; ascending.
  bool streams = false;     ///< kAll only: prefixes are Horovod's, "[0]<stdout>:".
  bool timestamps = false;  ///< kAll and kRanks only: the time stands in front of every prefix.
};

/// Reads "all", "streams", "errors", "different" or a list of ranks such as "0,3" or "0-2".
/// INVALID_ARGUMENT says what is allowed.
[[nodiscard]] Result<Show> parse_show(std::string_view text);

}  // namespace corro::screen
