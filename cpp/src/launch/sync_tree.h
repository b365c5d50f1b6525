// The files that --sync brings to other hosts: those of a folder, without what .gitignore leaves
// out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "base/status.h"

namespace corro::launch {

/// As the folder was when it was read. Immutable.
class SyncTree {
 public:
  /// Reads the folder and all its files; `root`: an absolute path. Left out are .git, __pycache__,
  /// corro-runs, the path `without`, and what .gitignore names: in the folder, below it, and above
  /// it up to the root of a git work tree. Blocks; CANCELLED once `stops` says so, which is asked
  /// at each file.
  [[nodiscard]] static Result<SyncTree> read(const std::string& root, const std::string& without,
                                             const std::function<bool()>& stops);

  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] const std::vector<agent::SyncedFile>& files() const { return files_; }
  /// The list, for an agent.
  [[nodiscard]] std::vector<agent::Sync> announce() const;
  /// What an agent wants. NOT_FOUND and others with the file's name.
  [[nodiscard]] Result<agent::Part> read_part(const agent::Want& want) const;

 private:
  std::string root_;
  std::vector<agent::SyncedFile> files_;
};

}  // namespace corro::launch
