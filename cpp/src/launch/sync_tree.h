// The files that --sync brings to other hosts, and what agents want of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agent/messages.h"
#include "base/status.h"

namespace corro::launch {

/// As the folder was when SyncReader has read it. Immutable.
class SyncTree {
 public:
  SyncTree(std::string root, std::vector<agent::SyncedFile> files)
      : root_(std::move(root)), files_(std::move(files)) {}

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

/// "--sync FOLDER: 2 files, 0.5 MiB to send". Pure.
[[nodiscard]] std::string describe_lacking(const std::string& folder, uint64_t files,
                                           uint64_t bytes);

}  // namespace corro::launch
