// Which files .gitignore leaves out, as git's own check-ignore --no-index says: the same patterns,
// but no other files of patterns than are given. So a file that git tracks is left out, too, if a
// pattern names it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace corro::launch {

/// Rules of some folders, each for what is below its own. Value.
class IgnoreRules {
 public:
  /// Reads a file of patterns; `folder`: where it lies, "" or "a/b/" below the root. Later ones
  /// win.
  void add(std::string_view text, const std::string& folder);
  /// True if a path below the root is left out. Paths below a folder that is left out are not
  /// asked for.
  [[nodiscard]] bool ignores(const std::string& path, bool is_folder) const;

 private:
  struct Rule {
    std::string folder;        ///< Where it holds.
    std::string pattern = {};  ///< For what follows `folder` in a path.
    bool again = false;        ///< "!": not left out after all.
    bool folders = false;      ///< A folder only.
    bool by_name = false;      ///< Compared with the last part of the path.
  };
  std::vector<Rule> rules_;
};

/// True if a path fits a pattern with *, ?, [a-z], [!a-z], [[:alpha:]], \ and, between slashes, **.
/// A "[" without its "]", an unknown class and a "\" at the end fit nothing. Pure.
[[nodiscard]] bool fits_pattern(std::string_view pattern, std::string_view path);

}  // namespace corro::launch
