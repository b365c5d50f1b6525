// SavedTables: what rank 0 knows of tables that are saved, and has locked. A table is saved
//
//   alone       begin_alone() locks the folder, and finish() makes a snapshot of the parts
//   as a part   of a checkpoint that somebody else locks and commits: begin_part(), and finish()
//               keeps what became of the parts until take_parts(), for each attempt by itself
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/status.h"
#include "checkpoint/writer.h"
#include "table/service/snapshot_chain.h"
#include "table/service/worker.h"

namespace corro::table {

/// Externally synchronized. Blocks for the disk.
class SavedTables {
 public:
  /// INVALID_ARGUMENT if another table is saved in the folder, FAILED_PRECONDITION if another process
  /// writes there. What an earlier save of the table has left unfinished goes.
  /// Returns what the snapshot of this step builds on; none: it is to have all rows.
  [[nodiscard]] Result<std::optional<checkpoint::Base>> begin_alone(TableNumber table,
                                                                    const std::string& folder,
                                                                    uint64_t step,
                                                                    const SavePolicy& policy);
  void begin_part(TableNumber table);
  /// The table goes on with other rows.
  void adopt(TableNumber table) { saved_[table].chain.forget(); }
  /// All parts are there, or some will never be. A snapshot that cannot be finished is a line on
  /// stderr.
  void finish(const TableWorker::Written& written);

  /// The newest snapshot of the table alone.
  [[nodiscard]] std::optional<uint64_t> step_of(TableNumber table) const;
  /// As Tables::parts_written().
  [[nodiscard]] Result<std::optional<uint32_t>> take_parts(TableNumber table, uint64_t attempt);

 private:
  struct Saved {
    bool alone = true;
    std::string folder;
    size_t keep = 0;
    SnapshotChain chain;
    std::optional<checkpoint::Base> base = {};     ///< Of the one that is being written.
    std::optional<uint64_t> step = {};             ///< The newest snapshot.
    std::map<uint64_t, Result<uint32_t>> parts{};  ///< Of checkpoints, by attempt.
  };
  /// Rank 0's alone until the process ends.
  struct LockedFolder {
    TableNumber table = 0;
    checkpoint::FolderLock lock;
  };

  std::map<TableNumber, Saved> saved_;
  std::map<std::string, LockedFolder> folders_;
};

}  // namespace corro::table
