#include "launch/ignore_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <ranges>

namespace corro::launch {
namespace {

struct CharacterClass {
  std::string_view name;
  int (*has)(int);
};
constexpr auto kClasses = std::to_array<CharacterClass>({{"alnum", std::isalnum},
                                                         {"alpha", std::isalpha},
                                                         {"blank", std::isblank},
                                                         {"cntrl", std::iscntrl},
                                                         {"digit", std::isdigit},
                                                         {"graph", std::isgraph},
                                                         {"lower", std::islower},
                                                         {"print", std::isprint},
                                                         {"punct", std::ispunct},
                                                         {"space", std::isspace},
                                                         {"upper", std::isupper},
                                                         {"xdigit", std::isxdigit}});

/// "[...]" at the beginning of a pattern.
struct Set {
  size_t length = 0;  ///< In the pattern; 0: it has no end, or an unknown class: it fits nothing.
  bool has = false;   ///< The character is in it.
};

/// "[:name:]" inside of such a set.
struct ClassAt {
  size_t length = 0;   ///< 0: none begins here.
  bool has = false;    ///< The character is in it.
  bool wrong = false;  ///< There is no such class.
};
ClassAt read_class(std::string_view pattern, size_t at, unsigned char c) {
  if (!pattern.substr(at).starts_with("[:")) return {};
  const size_t end = pattern.find(']', at + 2);
  if (end == std::string_view::npos) return {.wrong = true};
  if (end < at + 3 || pattern[end - 1] != ':') return {};  // characters like others
  const std::string_view name = pattern.substr(at + 2, end - at - 3);
  const auto* found = std::ranges::find(kClasses, name, &CharacterClass::name);
  if (found == kClasses.end()) return {.wrong = true};
  return {.length = end + 1 - at, .has = found->has(c) != 0};
}

/// As git's wildmatch.c reads it: a "]" at its beginning is itself, and so is what a "\\" is
/// before.
Set read_set(std::string_view pattern, char c) {
  const auto code = [](char one) { return static_cast<unsigned char>(one); };
  size_t at = 1;
  const bool negated = at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^');
  if (negated) ++at;
  bool found = false;
  const auto next = [&] {
    if (pattern[at] == '\\') ++at;
    return at < pattern.size() ? code(pattern[at++]) : code('\0');
  };
  for (const size_t first = at; at < pattern.size();) {
    if (pattern[at] == ']' && at > first) return {.length = at + 1, .has = found != negated};
    const ClassAt known = read_class(pattern, at, code(c));
    if (known.wrong) return {};
    found = found || known.has;
    at += known.length;
    if (known.length > 0) continue;
    const unsigned char low = next();
    unsigned char high = low;
    if (at + 1 < pattern.size() && pattern[at] == '-' && pattern[at + 1] != ']') {
      ++at;
      high = next();
    }
    found = found || code(c) == low || (low <= code(c) && code(c) <= high);
  }
  return {};
}

/// Without the spaces at its end, but for one that is behind a backslash.
size_t length_without_blanks(std::string_view line) {
  size_t length = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    const bool escapes = line[at] == '\\' && at + 1 < line.size();
    if (escapes) ++at;
    if (escapes || line[at] != ' ') length = at + 1;
  }
  return length;
}

/// "*" or "**" and what follows. `begins`: before it is nothing, or a slash.
bool fits_stars(std::string_view pattern, std::string_view path, bool begins);

bool fits(std::string_view pattern, std::string_view path, bool begins) {
  if (pattern.empty()) return path.empty();
  if (pattern[0] == '*') return fits_stars(pattern, path, begins);
  if (path.empty()) return false;
  const char c = path[0];
  size_t used = 1;
  bool same = pattern[0] == c;
  if (pattern[0] == '?') {
    same = c != '/';
  } else if (pattern[0] == '\\') {
    used = 2;
    same = pattern.size() > 1 && pattern[1] == c;
  } else if (pattern[0] == '[') {
    const Set set = read_set(pattern, c);
    used = set.length;
    same = set.length > 0 && set.has && c != '/';
  }
  return same && fits(pattern.substr(used), path.substr(1), c == '/');
}

bool fits_stars(std::string_view pattern, std::string_view path, bool begins) {
  const size_t stars = std::min(pattern.find_first_not_of('*'), pattern.size());
  const std::string_view rest = pattern.substr(stars);
  // Between slashes, two are any folders, or none; elsewhere they are as one.
  const bool folders = stars > 1 && begins && (rest.empty() || rest[0] == '/');
  if (folders && rest.empty()) return !path.empty();
  if (folders && fits(rest.substr(1), path, true)) return true;
  for (size_t taken = 0; taken <= path.size(); ++taken) {
    if (fits(rest, path.substr(taken), false)) return true;
    if (taken < path.size() && path[taken] == '/' && !folders) return false;
  }
  return false;
}

}  // namespace

bool fits_pattern(std::string_view pattern, std::string_view path) {
  // git compares what is before the first wildcard by itself; so "a**/b" fits a/x/b.
  const size_t plain = std::min(pattern.find_first_of("*?[\\"), pattern.size());
  if (!path.starts_with(pattern.substr(0, plain))) return false;
  return fits(pattern.substr(plain), path.substr(plain), true);
}

void IgnoreRules::add(std::string_view text, const std::string& folder) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (const auto part : std::views::split(text, '\n')) {
    std::string_view line(part.begin(), part.end());
    if (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_suffix(line.size() - length_without_blanks(line));
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
