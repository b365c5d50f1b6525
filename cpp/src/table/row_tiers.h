// RowTiers: rows of a table in memory, as many as there is room for, and the others in a log on disk.
//
// A row's *number*, which its index entry keeps, says where it is: a slot in memory, or with kCold a
// place in the log. So a key without a row costs no read, and a row on disk exactly one. A row:
//
//   dirty    in memory alone. New rows are, and each that was changed
//   clean    in memory, and as it is at its place in the log: it was read for a pull
//   cold     in the log alone
//
//   take() -> dirty     warm_up() -> clean     change(): clean -> dirty, its place is dropped
//   cooled: dirty -> cold, by an append to the log; clean -> cold, for nothing
//
// take() and warm_up() need a slot. Without room for one, a row is cooled: the first that was not
// touched since the clock's hand last went by (CLOCK, as keyed_rows.h has it, but over slots). A row
// that was just read is not touched yet. So a row that is read once goes before others, and its
// second touch keeps it.
//
// What fails, and when: reading, and prepare(), which sees to room in the log for what a push may
// cool. A push calls both before it changes anything. Behind them a write that fails leaves its rows
// in memory, beyond the budget, and the next prepare() fails.
//
// Rows of this process's pushes and pulls have the same bits wherever they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "table/log/row_log.h"
#include "table/rows.h"
#include "table/types.h"

namespace corro::table {

/// Externally synchronized. Blocks for the disk.
class RowTiers final : private RowLog::Owner {
 public:
  static constexpr uint32_t kCold = 1U << 31U;
  [[nodiscard]] static bool is_cold(uint32_t number) { return (number & kCold) != 0; }

  /// The index: which number a key's row has.
  class Numbers {
   public:
    virtual ~Numbers() = default;
    /// UINT32_MAX: the key has no row.
    [[nodiscard]] virtual uint32_t number_of(uint64_t key) const = 0;
    /// The key has a row.
    virtual void set_number(uint64_t key, uint32_t number) = 0;
    /// It is about to be asked for this key: two stages, the second wants what the first one asked
    /// the memory for.
    virtual void prefetch_tags_of(uint64_t key) const = 0;
    virtual void prefetch_entry_of(uint64_t key) const = 0;
  };

  struct Options {
    std::string table;
    uint64_t most_bytes = 0;  ///< Of rows in memory and index.
    size_t row_bytes = 0;     ///< A multiple of 4.
    uint64_t segment_bytes = RowLog::kSegmentBytes;
  };
  /// `numbers` is borrowed.
  RowTiers(const Options& options, std::unique_ptr<Disk> disk, Numbers& numbers);

  /// Before a push or an import: room for rows that come into memory, `added` of them new ones, in a
  /// table that has `rows` now. `entry_bytes`: of the index, a row. RESOURCE_EXHAUSTED in
  /// one line; nothing has changed then.
  struct Need {
    uint64_t rows = 0;
    uint64_t brought = 0;
    uint64_t added = 0;
    size_t entry_bytes = 0;
  };
  [[nodiscard]] Status prepare(const Need& need);
  /// The index has so many bytes now.
  void set_index_bytes(size_t bytes) { index_bytes_ = bytes; }
  /// Behind a push: gives memory back that the index has taken, and compacts the log a little.
  void settle();

  /// A slot with anything in it, for a row of this key; other rows may be cooled.
  [[nodiscard]] uint32_t take(uint64_t key);
  /// The row goes.
  void give(uint32_t number);

  void prefetch(uint32_t slot) const { slots_.prefetch(slot); }
  /// The row of a slot, until the next take() or warm_up().
  [[nodiscard]] std::byte* at(uint32_t slot) const { return slots_.at(slot) + kHeadBytes; }
  /// The row was used.
  void touch(uint32_t slot) { head_of(slot).state = kTaken | kTouched; }
  /// The row is used, and about to be changed.
  void change(uint32_t slot);

  /// Visits the rows of cold numbers, in any order, but equal numbers one after the other: `visit(i,
  /// row)` for `numbers[i]`. It may call warm_up(), and nothing else of this. DATA_LOSS in one line: a row cannot be read.
  [[nodiscard]] Status read(std::span<const uint32_t> numbers, const RowLog::Visit& visit);
  /// A row that was read, once: keeps a copy of it in memory, if there is room for it.
  void warm_up(uint64_t key, uint32_t number, const std::byte* row);

  /// Of rows and index.
  [[nodiscard]] uint64_t bytes() const { return slots_.bytes() + index_bytes_; }
  /// Adds what it knows.
  void count(TableStats& stats) const;

 private:
  /// What precedes each row in memory. The log's record is its key, and the row behind it.
  struct Head {
    uint32_t home;   ///< The place of a clean row in the log, or kNone. A free slot's is of Rows.
    uint32_t state;  ///< 0: the slot is free.
    uint64_t key;
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kTaken = 1;
  static constexpr uint32_t kTouched = 2;
  static constexpr size_t kHeadBytes = sizeof(Head);
  static constexpr size_t kKeyAt = offsetof(Head, key);

  [[nodiscard]] Head& head_of(uint32_t slot) const {
    return *reinterpret_cast<Head*>(slots_.at(slot));
  }
  [[nodiscard]] uint64_t room() const;
  [[nodiscard]] bool fits_one_more() const;
  void prefetch_at_hand() const;
  bool cool_one();
  bool cool(uint32_t slot);
  uint32_t put(uint64_t key, uint32_t home, uint32_t state);
  bool lives(const std::byte* record, uint32_t place) override;
  void moved(const std::byte* record, uint32_t from, uint32_t to) override;

  const Options options_;
  Numbers& numbers_;
  Rows slots_;
  RowLog log_;
  size_t index_bytes_ = 0;
  uint32_t hand_ = 0;
  uint64_t compacted_at_ = 0;  ///< Records that were written when settle() last looked.
  uint64_t warmed_ = 0;
};

}  // namespace corro::table
