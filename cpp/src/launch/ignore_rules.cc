#include "launch/ignore_rules.h"

#include <algorithm>
#include <ranges>

namespace corro::launch {
namespace {

/// The length of "[...]" at the beginning of the pattern; 0 if it has no end.
size_t length_of_set(std::string_view pattern) {
  size_t at = 1;
  if (at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^')) ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;  // as itself
  while (at < pattern.size() && pattern[at] != ']') at += pattern[at] == '\\' ? 2 : 1;
  return at < pattern.size() ? at + 1 : 0;
}

/// `set`: what is between the brackets.
bool is_in_set(std::string_view set, char c) {
  const bool negated = !set.empty() && (set[0] == '!' || set[0] == '^');
  if (negated) set.remove_prefix(1);
  bool found = false;
  const auto next = [&set] {
    if (set.size() > 1 && set[0] == '\\') set.remove_prefix(1);
    const char first = set[0];
    set.remove_prefix(1);
    return first;
  };
  while (!set.empty()) {
    const char low = next();
    char high = low;
    if (set.size() > 1 && set[0] == '-') {
      set.remove_prefix(1);
      high = next();
    }
    found = found || (low <= c && c <= high);
  }
  return found != negated;
}

}  // namespace

bool fits_pattern(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  if (pattern.starts_with("**/")) {  // at a beginning or after a slash: any folders, or none
    const std::string_view rest = pattern.substr(3);
    if (fits_pattern(rest, path)) return true;
    const size_t slash = path.find('/');
    return slash != std::string_view::npos && fits_pattern(pattern, path.substr(slash + 1));
  }
  if (pattern == "**") return !path.empty();
  if (pattern[0] == '*') {
    const size_t stars = std::min(pattern.find_first_not_of('*'), pattern.size());
    const std::string_view rest = pattern.substr(stars);
    for (size_t taken = 0; taken <= path.size(); ++taken) {
      if (fits_pattern(rest, path.substr(taken))) return true;
      if (taken < path.size() && path[taken] == '/') return false;
    }
    return false;
  }
  if (path.empty()) return false;
  const char c = path[0];
  size_t used = 1;
  bool fits = pattern[0] == c;
  if (pattern[0] == '?') {
    fits = c != '/';
  } else if (pattern[0] == '\\' && pattern.size() > 1) {
    used = 2;
    fits = pattern[1] == c;
  } else if (const size_t set = pattern[0] == '[' ? length_of_set(pattern) : 0; set > 0) {
    used = set;
    fits = c != '/' && is_in_set(pattern.substr(1, set - 2), c);
  }
  return fits && fits_pattern(pattern.substr(used), path.substr(1));
}

void IgnoreRules::add(std::string_view text, const std::string& folder) {
  for (const auto part : std::views::split(text, '\n')) {
    std::string_view line(part.begin(), part.end());
    if (line.ends_with('\r')) line.remove_suffix(1);
    while (line.ends_with(' ') && !line.ends_with("\\ ")) line.remove_suffix(1);
    if (line.empty() || line[0] == '#') continue;
    Rule rule{.folder = folder};
    if (line[0] == '!') {
      rule.again = true;
      line.remove_prefix(1);
    }
    if (line.ends_with('/')) {
      rule.folders = true;
      line.remove_suffix(1);
    }
    rule.by_name = line.find('/') == std::string_view::npos;
    if (line.starts_with('/')) line.remove_prefix(1);
    rule.pattern = line;
    if (!line.empty()) rules_.push_back(std::move(rule));
  }
}

bool IgnoreRules::ignores(const std::string& path, bool is_folder) const {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  for (const Rule& rule : std::views::reverse(rules_)) {
    if (!path.starts_with(rule.folder) || (rule.folders && !is_folder)) continue;
    const std::string_view below = std::string_view(path).substr(rule.folder.size());
    if (fits_pattern(rule.pattern, rule.by_name ? name : below)) return !rule.again;
  }
  return false;
}

}  // namespace corro::launch
