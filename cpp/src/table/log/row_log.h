// RowLog: rows of a table that memory has no room for, in the file of a Disk. It forgets nothing
// until the process ends, and keeps nothing beyond.
//
//   CORRO_TRY(log.reserve(1));
//   const uint32_t place = *log.append(record);        // [key][row]
//   CORRO_TRY(log.read(places, [&](size_t i, const std::byte* record) {...}));
//   log.drop(place);
//
// Records have one size, and stand in blocks of 4 KiB (more, if a record is larger): a record's
// *place* is its number among all that the file has room for, so it says the block, and a read of a
// record is one read of one block. A block:
//
//   checksum (4, CRC-32C of the rest)   0 (4)   the block's number (8)   records
//
// Blocks stand in segments of 64 MiB:
//
//   absent --reserve--> free --append--> open --it is full--> sealed --all are dropped--> free
//
// One segment is open. What is appended stands in memory, until 256 KiB of it are written at once; a
// write that fails is done again by the next append, and its records are read from memory until
// then. Of free segments two are kept, and others are given back to the disk.
//
// A sealed segment of which more than half the records were dropped is *compacted*: its records are
// read in order, and those that live are appended once more. reserve() sees to room for half a
// segment beyond what it is asked for, so that this works on a full disk, too. A segment with a
// block that cannot be read is not compacted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "table/log/disk.h"

namespace corro::table {

/// Externally synchronized. Blocks for the disk.
class RowLog {
 public:
  static constexpr uint32_t kPlaces = 1U << 31U;  ///< Places are below it.
  static constexpr uint64_t kSegmentBytes = uint64_t{64} << 20U;

  struct Counts {
    uint64_t rows = 0;     ///< Records that are not dropped.
    uint64_t bytes = 0;    ///< Of the file: segments that are not absent.
    uint64_t reads = 0;    ///< Blocks that were read from the disk for read(), ever.
    uint64_t written = 0;  ///< Records that were appended, ever; also by compact().
  };
  /// Whose records these are.
  class Owner {
   public:
    virtual ~Owner() = default;
    /// A record in a segment that is about to go: true if it is to be kept, elsewhere. If not, the
    /// owner drops it, unless it has done so.
    virtual bool lives(const std::byte* record, uint32_t place) = 0;
    /// It is there now, and the owner drops `from`.
    virtual void moved(const std::byte* record, uint32_t from, uint32_t to) = 0;
  };

  /// `table`: its name, for failures.
  RowLog(std::string table, size_t record_bytes, std::unique_ptr<Disk> disk,
         uint64_t segment_bytes = kSegmentBytes);

  /// Sees to room for so many records more; compacts where the disk is full. RESOURCE_EXHAUSTED in
  /// one line if there is none.
  [[nodiscard]] Status reserve(size_t records, Owner& owner);
  /// None: there is no room, or what was appended cannot be written.
  [[nodiscard]] std::optional<uint32_t> append(const std::byte* record);
  /// The place has a record, which is needed no more.
  void drop(uint32_t place);

  /// Visits the record of each place, in any order but that of a block's records one after the other,
  /// as their places ascend: `visit(i, record)` for `places[i]`. It may append, and may not drop.
  /// DATA_LOSS: a block cannot be read, or is not what was written. Others are visited all the same.
  using Visit = std::function<void(size_t i, const std::byte* record)>;
  [[nodiscard]] Status read(std::span<const uint32_t> places, const Visit& visit);

  /// Compacts what the next `blocks` blocks hold, if a segment is worth it.
  void compact(size_t blocks, Owner& owner);

  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] size_t block_records() const { return block_records_; }

 private:
  enum class State : uint8_t { kAbsent, kFree, kOpen, kSealed };
  struct Segment {
    State state = State::kAbsent;
    bool unreadable = false;
    uint32_t live = 0;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  [[nodiscard]] uint64_t block_of(uint32_t place) const { return place / block_records_; }
  [[nodiscard]] uint32_t segment_of(uint32_t place) const {
    return static_cast<uint32_t>(block_of(place) / segment_blocks_);
  }
  [[nodiscard]] uint64_t segment_records() const { return segment_blocks_ * block_records_; }
  [[nodiscard]] bool in_memory(uint64_t block) const {
    return open_ != kNone && block >= batch_block_ && block < batch_block_ + batch_blocks_;
  }
  [[nodiscard]] size_t record_at(uint32_t place) const {
    return kHeadBytes + place % block_records_ * record_bytes_;
  }

  [[nodiscard]] uint64_t room() const;
  [[nodiscard]] bool make_room(uint64_t records, Owner& owner);
  [[nodiscard]] Status add_segment();
  bool open_segment();
  bool write_batch();
  void free_segment(uint32_t segment);
  [[nodiscard]] uint32_t choose_victim() const;
  bool compact_blocks(size_t count, Owner& owner);
  bool compact_block(const std::byte* block, Owner& owner);
  [[nodiscard]] Status read_group(std::span<const uint32_t> places, std::span<const size_t> order,
                                  const Visit& visit);
  [[nodiscard]] Status read_blocks(uint64_t first, size_t count);
  [[nodiscard]] Status check_block(const std::byte* block, uint64_t number) const;

  static constexpr size_t kHeadBytes = 16;

  const std::string table_;
  const size_t record_bytes_;
  const size_t block_bytes_;
  const uint64_t block_records_;
  const uint64_t batch_blocks_;    ///< That are written at once.
  const uint64_t segment_blocks_;  ///< A multiple of batch_blocks_.
  const std::unique_ptr<Disk> disk_;

  std::vector<Segment> segments_;
  uint32_t open_ = kNone;
  uint32_t victim_ = kNone;    ///< The segment that is compacted.
  uint64_t victim_block_ = 0;  ///< Its blocks before this one are done.
  uint64_t batch_block_ = 0;   ///< The first one in memory.
  uint64_t batch_records_ = 0;
  Status write_failure_;  ///< Of the last write.
  Counts counts_;

  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete(memory, std::align_val_t{kDiskUnit});
    }
  };
  using Buffer = std::unique_ptr<std::byte[], Free>;
  static Buffer make_buffer(size_t bytes);
  Buffer batch_;
  Buffer blocks_;  ///< What is read.
};

}  // namespace corro::table
