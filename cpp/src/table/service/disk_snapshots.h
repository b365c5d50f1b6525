// A table's snapshots in a folder, as a folder of checkpoints (checkpoint/writer.h): a part's file in
// the place of a rank's. The last thing that is written is the manifest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "checkpoint/writer.h"
#include "table/local_table.h"

namespace corro::table {

/// Once all parts are there: makes a snapshot of them, and removes those before it but for `keep`,
/// this one among them. Whoever calls it holds the folder's lock. Blocks.
[[nodiscard]] Status commit_snapshot(const std::string& folder, uint64_t step, uint64_t attempt,
                                     uint32_t parts, size_t keep);

/// Makes the folder, takes its lock, and removes what others have left unfinished.
[[nodiscard]] Result<checkpoint::FolderLock> lock_snapshots(const std::string& folder);

/// Removes what was left unfinished. The caller has the lock.
[[nodiscard]] Status remove_unfinished(const std::string& folder);

/// A number for an attempt that no other one has; its low 16 bits are 0.
[[nodiscard]] uint64_t draw_attempt();

/// Writes a snapshot of one part, of a table in this process. Blocks until it is there.
[[nodiscard]] Status save_local(const std::string& folder, const LocalTable& rows, uint64_t step,
                                size_t keep);

}  // namespace corro::table
