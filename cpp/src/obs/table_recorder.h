// The table recorder: what a table server keeps and does, in a memfd that it writes with plain atomics
// and that others read (the agent of its host), also while the server hangs.
//
//   auto recorder = TableRecorder::create().value();
//   const auto number = recorder->add("words");
//   if (number) recorder->write(*number, {.rows = 3, .pulls = 1});
//   ... read_tables(recorder->fd()) in another process ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "obs/sealed_memory.h"

namespace corro::obs {

inline constexpr size_t kMostShownTables = 64;  ///< Of a server; of others nothing is shown.
inline constexpr size_t kTableNameBytes = 128;  ///< As table::kMaxNameBytes.

/// What a server keeps of a table, and has done with it since it was started.
struct TableCounts {
  std::string name = {};
  uint64_t rows = 0;
  uint64_t bytes = 0;   ///< Of memory that the rows and their index take.
  uint64_t shards = 0;  ///< Of all rows' shards, those that it serves.
  uint64_t steps = 0;   ///< That the table has taken.
  uint64_t pulls = 0;   ///< Messages that were answered with rows.
  uint64_t pulled_rows = 0;
  uint64_t pushes = 0;  ///< Messages that were taken.
  uint64_t pushed_rows = 0;
  /// Of the last pulls, about a thousand: from hearing one, or from the step that it waits for, to the
  /// answer.
  uint64_t pull_p99_ns = 0;
  bool operator==(const TableCounts&) const = default;
};

struct TableMemory;  // table_layout.h

/// One writer at a time. Never blocks or allocates after create().
class TableRecorder {
 public:
  [[nodiscard]] static Result<std::unique_ptr<TableRecorder>> create();
  TableRecorder(const TableRecorder&) = delete;
  TableRecorder& operator=(const TableRecorder&) = delete;

  /// Another table, of a name that none has, not empty; what is beyond kTableNameBytes is cut off.
  /// Returns its number; none: kMostShownTables are there.
  [[nodiscard]] std::optional<size_t> add(std::string_view name);
  /// What is now known of a table of add(); `counts.name` is not looked at.
  void write(size_t number, const TableCounts& counts);
  /// The server is over: nothing is shown any more.
  void clear();
  /// The sealed memfd named "corro-tables"; pass it on to let others read. Owned by the recorder.
  [[nodiscard]] int fd() const { return memory_.fd(); }

 private:
  explicit TableRecorder(SealedMemory memory) : memory_(std::move(memory)) {}
  [[nodiscard]] TableMemory& tables() const;

  SealedMemory memory_;
};

/// Reads a recorder's memory through its descriptor, in the order of add(); foreign bytes, so
/// everything is checked. DATA_LOSS if it is none. Does not keep the fd.
[[nodiscard]] Result<std::vector<TableCounts>> read_tables(int fd);

}  // namespace corro::obs
