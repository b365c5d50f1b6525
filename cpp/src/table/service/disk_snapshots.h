// Tables' parts of checkpoints (checkpoint/writer.h). A snapshot of a table alone is a checkpoint that
// has one table, and nothing of ranks. The last thing that is written is the manifest.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "checkpoint/writer.h"
#include "table/changed_keys.h"
#include "table/local_table.h"
#include "table/service/page_queue.h"
#include "table/service/snapshot_messages.h"
#include "table/service/snapshot_store.h"

namespace corro::table {

/// Once all parts are there: makes a snapshot of a table of them, and removes those before it but for
/// `keep`, this one among them. Whoever calls it holds the folder's lock. Blocks.
[[nodiscard]] Status commit_snapshot(const std::string& folder, uint64_t step, uint64_t attempt,
                                     uint32_t parts, size_t keep);

/// Makes the folder, takes its lock, and removes what others have left unfinished.
[[nodiscard]] Result<checkpoint::FolderLock> lock_snapshots(const std::string& folder);

/// Removes what was left unfinished. The caller has the lock.
[[nodiscard]] Status remove_unfinished(const std::string& folder);

/// A number for an attempt that no other one has; its low 16 bits are 0.
[[nodiscard]] uint64_t draw_attempt();

/// Writes a part of a checkpoint that has all rows of a table in this process, or those of the changed
/// keys, which the caller commits. `save`: its shards are not looked at. Blocks until it is on the disk.
[[nodiscard]] Status write_local_part(const Save& save, const LocalTable& rows,
                                      std::shared_ptr<const ChangedKeys> changed = nullptr);

/// The rows that RowsLoading::take() gives. Blocks: a thread of its own reads and checks what this one makes rows of.
/// `queue`: its give_up(), by another thread, ends the reading with CANCELLED.
[[nodiscard]] Result<LoadedRows> load_rows(const std::string& folder, uint64_t step,
                                           const LoadOptions& options, PageQueue& queue);

/// Writes a snapshot of a table in this process. Blocks until it is there.
[[nodiscard]] Status save_local(const std::string& folder, const LocalTable& rows, uint64_t steps,
                                size_t keep);
/// The same of what has changed since a base; null: of all rows.
[[nodiscard]] Status save_local(const std::string& folder, const LocalTable& rows, uint64_t steps,
                                size_t keep, const std::optional<checkpoint::Base>& base,
                                std::shared_ptr<const ChangedKeys> changed);

}  // namespace corro::table
