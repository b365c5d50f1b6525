// The memory of a table recorder: a header, then a cell for each table. Private to obs/. Byte tables:
// docs/wire.md.
//
// Every field is a lock-free atomic. A cell's name is stored before `count` is, with release, and never
// changes: who acquires the count may trust so many names. Its numbers are words of their own: they
// change one by one, and a reader may see some of now and some of a moment ago.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "obs/table_recorder.h"

namespace corro::obs {

inline constexpr uint64_t kTableMagic = 0x314C42544F52524FULL;   // "ORROTBL1"
inline constexpr uint64_t kTableKind = kTableMagic << 8U >> 8U;  // Without the version.
inline constexpr const char* kTableMemfdName = "corro-tables";

struct alignas(64) TableHeader {
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> count;  ///< Cells that have a name.
};

struct TableCell {
  /// Zero-padded, the last byte 0.
  std::array<std::atomic<uint64_t>, kTableNameBytes / sizeof(uint64_t) + 1> name;
  std::atomic<uint64_t> rows;
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> shards;
  std::atomic<uint64_t> steps;
  std::atomic<uint64_t> pulls;
  std::atomic<uint64_t> pulled_rows;
  std::atomic<uint64_t> pushes;
  std::atomic<uint64_t> pushed_rows;
  std::atomic<uint64_t> pull_p99_ns;
};

struct TableMemory {
  TableHeader header;
  std::array<TableCell, kMostShownTables> cells;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(offsetof(TableHeader, count) == 8 && offsetof(TableMemory, cells) == 64 &&
              offsetof(TableCell, rows) == 136 && offsetof(TableCell, bytes) == 144 &&
              offsetof(TableCell, shards) == 152 && offsetof(TableCell, steps) == 160 &&
              offsetof(TableCell, pulls) == 168 && offsetof(TableCell, pulled_rows) == 176 &&
              offsetof(TableCell, pushes) == 184 && offsetof(TableCell, pushed_rows) == 192 &&
              offsetof(TableCell, pull_p99_ns) == 200 && sizeof(TableCell) == 208 &&
              sizeof(TableMemory) == 13376);

}  // namespace corro::obs
