// SnapshotStore: where servers write parts of snapshots, and read them. It stands apart so that the service
// is tested without a disk.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "table/service/snapshot_messages.h"
#include "table/service/snapshot_part.h"

namespace corro::table {

/// A part that is being written. Destroyed before its end it is given up.
class PartWriter {
 public:
  PartWriter() = default;
  PartWriter(const PartWriter&) = delete;
  PartWriter& operator=(const PartWriter&) = delete;
  virtual ~PartWriter() = default;

  /// write() would not block.
  [[nodiscard]] virtual bool has_room() const = 0;
  /// Takes a page (row_snapshot.h).
  virtual void write(Bytes page) = 0;
  /// There are no more pages. Does not block.
  virtual void finish() = 0;
  /// Once the part is on the disk, or could not be written; none until then.
  [[nodiscard]] virtual std::optional<Status> result() const = 0;
};

/// Rows of a table out of a checkpoint, which are those after so many steps of it.
struct LoadedRows {
  std::unique_ptr<LocalTable> rows;
  uint64_t steps = 0;
};

/// Rows that are being read. Destroyed before its end it is given up.
class RowsLoading {
 public:
  RowsLoading() = default;
  RowsLoading(const RowsLoading&) = delete;
  RowsLoading& operator=(const RowsLoading&) = delete;
  virtual ~RowsLoading() = default;

  [[nodiscard]] virtual bool done() const = 0;
  /// Once done, once: the rows; DATA_LOSS if the checkpoint is damaged, INVALID_ARGUMENT if it is of
  /// other tables.
  [[nodiscard]] virtual Result<LoadedRows> take() = 0;
};

class SnapshotStore {
 public:
  SnapshotStore() = default;
  SnapshotStore(const SnapshotStore&) = delete;
  SnapshotStore& operator=(const SnapshotStore&) = delete;
  virtual ~SnapshotStore() = default;

  /// Does not block; failures are the writer's result.
  [[nodiscard]] virtual std::unique_ptr<PartWriter> begin(const Save& save,
                                                          const PartHead& head) = 0;
  /// Begins to read the rows that `options` wants, of the checkpoint of this step in a folder. Does not
  /// block.
  [[nodiscard]] virtual std::unique_ptr<RowsLoading> begin_load(const std::string& folder,
                                                                uint64_t step,
                                                                const LoadOptions& options) = 0;
};

/// On this machine's file systems. `on_progress` is called by a thread: of a writer when it has room
/// again, or a result, and of what is loaded when it is done.
[[nodiscard]] std::unique_ptr<SnapshotStore> disk_snapshots(std::function<void()> on_progress);

}  // namespace corro::table
