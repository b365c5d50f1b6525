#include "screen/show.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

namespace corro::screen {
namespace {

constexpr int kMaxRank = 1 << 16;

std::optional<int> parse_rank(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || value < 0 || value > kMaxRank) return std::nullopt;
  return value;
}

/// Adds "3" or "0-2" to the list; false if it is neither.
bool add_ranks(std::string_view part, std::vector<int>& ranks) {
  const size_t dash = part.find('-');
  const auto first = parse_rank(part.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_rank(part.substr(dash + 1));
  if (!first || !last || *last < *first) return false;
  for (int rank = *first; rank <= *last; ++rank) ranks.push_back(rank);
  return true;
}

}  // namespace

Result<Show> parse_show(std::string_view text) {
  if (text == "all") return Show{.mode = ShowMode::kAll, .ranks = {}};
  if (text == "streams") return Show{.mode = ShowMode::kAll, .ranks = {}, .streams = true};
  if (text == "errors") return Show{.mode = ShowMode::kErrors, .ranks = {}};
  if (text == "different") return Show{.mode = ShowMode::kDifferent, .ranks = {}};
  Show show{.mode = ShowMode::kRanks, .ranks = {}};
  for (std::string_view rest = text; !text.empty();) {
    const size_t comma = rest.find(',');
    if (!add_ranks(rest.substr(0, comma), show.ranks)) break;
    if (comma == std::string_view::npos) {
      std::ranges::sort(show.ranks);
      const auto repeated = std::ranges::unique(show.ranks);
      show.ranks.erase(repeated.begin(), repeated.end());
      return show;
    }
    rest.remove_prefix(comma + 1);
  }
  return Status(Code::kInvalidArgument,
                "--show takes different, all, streams, errors or ranks such as 0,3 (not '" +
                    std::string(text) + "')");
}

}  // namespace corro::screen
