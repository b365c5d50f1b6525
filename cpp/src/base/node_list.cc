#include "base/node_list.h"

#include <fmt/format.h>

#include <charconv>

namespace corro {
namespace {

constexpr size_t kMostNodes = 65536;
constexpr size_t kMostDigits = 9;

Status broken(std::string_view part) {
  return {Code::kInvalidArgument,
          fmt::format("'{}' is no list of hosts such as node[01-03,7],gpu1", part)};
}

/// Takes what stands before the first comma outside of brackets.
std::string_view take_entry(std::string_view& text) {
  size_t end = 0;
  for (bool inside = false; end < text.size() && (inside || text[end] != ','); ++end)
    inside = text[end] == '[' || (inside && text[end] != ']');
  const std::string_view entry = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  return entry;
}

/// False unless it is a number of at most kMostDigits digits.
bool read_number(std::string_view digits, unsigned& number) {
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.begin(), end, number);
  return !digits.empty() && digits.size() <= kMostDigits && error == std::errc() && stop == end;
}

/// Reads "01-03,7": the numbers as text, as wide as the first one of their range.
Result<std::vector<std::string>> expand_ranges(std::string_view text) {
  std::vector<std::string> numbers;
  while (true) {
    const std::string_view range = text.substr(0, text.find(','));
    const size_t dash = range.find('-');
    const std::string_view from = range.substr(0, dash);
    unsigned first = 0;
    unsigned last = 0;
    if (!read_number(from, first)) return broken(range);
    last = first;
    if (dash != std::string_view::npos && !read_number(range.substr(dash + 1), last))
      return broken(range);
    if (last < first || last - first >= kMostNodes - numbers.size()) return broken(range);
    for (unsigned number = first; number <= last; ++number)
      numbers.push_back(fmt::format("{:0{}}", number, from.size()));
    if (range.size() == text.size()) return numbers;
    text.remove_prefix(range.size() + 1);
  }
}

/// All of `begun`, each followed by all of `more`.
Result<std::vector<std::string>> combine(const std::vector<std::string>& begun,
                                         const std::vector<std::string>& more) {
  if (begun.size() * more.size() > kMostNodes) return broken("more than 65536 hosts");
  std::vector<std::string> all;
  for (const std::string& one : begun) {
    for (const std::string& rest : more) all.push_back(one + rest);
  }
  return all;
}

Result<std::vector<std::string>> expand_entry(std::string_view entry) {
  std::vector<std::string> names = {""};
  std::string_view rest = entry;
  while (!rest.empty()) {
    const size_t open = rest.find('[');
    const std::string_view plain = rest.substr(0, open);
    if (plain.find(']') != std::string_view::npos) return broken(entry);
    for (std::string& name : names) name += plain;
    if (open == std::string_view::npos) break;
    const size_t close = rest.find(']', open);
    if (close == std::string_view::npos) return broken(entry);
    CORRO_ASSIGN(const auto numbers, expand_ranges(rest.substr(open + 1, close - open - 1)));
    CORRO_ASSIGN(names, combine(names, numbers));
    rest.remove_prefix(close + 1);
  }
  if (entry.empty()) return broken(entry);
  return names;
}

}  // namespace

Result<std::vector<std::string>> expand_node_list(std::string_view text) {
  std::vector<std::string> hosts;
  do {
    CORRO_ASSIGN(const auto names, expand_entry(take_entry(text)));
    if (names.size() > kMostNodes - hosts.size()) return broken("more than 65536 hosts");
    hosts.insert(hosts.end(), names.begin(), names.end());
  } while (!text.empty());
  return hosts;
}

}  // namespace corro
