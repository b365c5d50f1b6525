// SyncReader: reads the folder that --sync brings to other hosts, some of it at a time, so that the
// launcher hears signals and keeps its agents meanwhile.
//
//   advance()   the next folder's entries, or some more of a file; a file may take many
//   done()      take() has the tree
//
// Folders come before what is in them.
#pragma once

#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/synced_file.h"
#include "base/status.h"
#include "launch/ignore_rules.h"
#include "launch/sync_tree.h"

namespace corro::launch {

/// Loop-confined.
class SyncReader {
 public:
  /// `root`: an absolute path. Left out are .git, __pycache__, corro-runs, parts of files that
  /// another --sync brings here, the path `without`, what is no file, link or folder, and what
  /// .gitignore names: in the folder, below it, and above it up to the root of a git work tree.
  SyncReader(const std::string& root, const std::string& without);

  /// Reads on: at most so many entries, and so many bytes of files. NOT_FOUND and others with the
  /// path.
  [[nodiscard]] Status advance();
  static constexpr size_t kEntriesAtOnce = 64;
  static constexpr uint64_t kBytesAtOnce = uint64_t{4} << 20U;
  [[nodiscard]] bool done() const { return entries_.empty() && folders_.empty(); }
  /// Once it is done.
  [[nodiscard]] SyncTree take() { return {root_.string(), std::move(files_)}; }

  /// What was read so far: files and links, and bytes of them.
  [[nodiscard]] size_t files() const { return count_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  [[nodiscard]] std::string below_top(const std::filesystem::path& path) const;
  void read_rules(const std::filesystem::path& folder);
  [[nodiscard]] Status list_folder(const std::filesystem::path& folder);
  [[nodiscard]] Status read_entry(const std::filesystem::directory_entry& entry, uint64_t& most);
  [[nodiscard]] bool is_left_out(const std::filesystem::directory_entry& entry,
                                 bool is_folder) const;

  const std::filesystem::path root_, top_, without_;  ///< `top_`: of the git work tree.
  IgnoreRules rules_;
  std::deque<std::filesystem::path> folders_;             ///< Not listed yet.
  std::deque<std::filesystem::directory_entry> entries_;  ///< Of the folder that was listed last.
  std::optional<agent::ContentReader> content_;           ///< Of the first of entries_.
  size_t count_ = 0;
  uint64_t bytes_ = 0;
  std::vector<agent::SyncedFile> files_;
};

}  // namespace corro::launch
