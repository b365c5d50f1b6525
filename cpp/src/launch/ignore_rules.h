// Which files .gitignore leaves out, as gitignore(5) of git 2.43 defines it.
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
  /// Whether a path below the root is left out. What is below a folder that is left out is not
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

/// Whether a path fits a pattern with *, ?, [a-z], [!a-z], \ and, between slashes, **. Pure.
[[nodiscard]] bool fits_pattern(std::string_view pattern, std::string_view path);

}  // namespace corro::launch
