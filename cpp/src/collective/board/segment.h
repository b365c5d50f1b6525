// Segment: the shared memory of one process. It holds a header, a table of sections, and a heap.
// The heap gives out sections (one for each lane: this process's part of the board), stages and
// arenas.
//
// One sealed memfd. Its owner maps all of it. A local peer maps the start, and more when it looks
// there (see Segment).
//
//   a section   open_section() takes zeroed memory, and puts its place into the table last: from
//               then on peers find it. hide_section() takes the place out: nobody finds it any
//               more. free_section() gives its memory back, once no member can look at it any more
//   an arena    allocate() gives zeroed pages, free() gives them back. If a failed operation has
//               used them, set_apart() makes them private: late stores of peers miss them, and
//               their addresses are not given out again
//
// Fields that peers read while the owner writes them are atomics. Plain bytes are published by a
// stamp: the writer stores it with release, the reader loads it with acquire. The bytes stay put
// until every reader has counted the operation as completed. Byte tables: docs/wire.md.
//
// Peers can write to all of it at any time. So everything that is read here is foreign, in the own
// segment too. The bounds of a memory access are computed from the own request, or from a word that
// was read once and checked.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/guarded.h"
#include "base/lane_key.h"
#include "base/signature_bits.h"
#include "base/status.h"
#include "collective/operation/members.h"
#include "io/fd.h"
#include "io/memory.h"
#include "obs/metrics.h"

namespace corro::collective {

inline constexpr uint32_t kLines = 64;    ///< Operations of one group in flight over the board.
inline constexpr uint32_t kSlots = 16;    ///< Of these, so many that need a slot.
inline constexpr size_t kLineBytes = 32;  ///< Payload that fits into the line itself.
inline constexpr size_t kSlotBytes = size_t{16} << 10U;  ///< Payload that fits into a slot.
/// How many operations of so many bytes a lane has in flight. More large ones would only push each
/// other's bytes out of the cache.
[[nodiscard]] constexpr uint32_t most_in_flight(uint64_t bytes) {
  return bytes > kSlotBytes ? kSlots : kLines;
}
/// Private memory above this is staged: that keeps it in the cache between reading and writing,
/// which the kernel's copies do not (measured; collectives of one host in docs/algorithms.md).
inline constexpr uint64_t kMostCopiedBytes = uint64_t{8} << 20U;
inline constexpr uint32_t kStages = 4;  ///< Staging buffers, used in turn.
inline constexpr size_t kStageBytes = size_t{128} << 10U;
inline constexpr int32_t kMaxBoardRanks = 256;
inline constexpr uint64_t kSegmentMagic = 0x3647455336524f43;  // "COR6SEG6"

/// Reads a plain word of shared memory once: what was checked is what is used.
template <typename T>
[[nodiscard]] T read_once(const T& word) {
  return *static_cast<const volatile T*>(&word);
}

/// Where a rank's contribution (and result buffer) of one operation is: in the line or a slot; in
/// its arena; in private memory that peers may read where it is (process_vm_readv), or that has to
/// be staged.
enum class Where : uint8_t { kLine, kSlot, kMapped, kCopied, kPrivate };

/// The cache line that one rank publishes for one operation. `stamp` is 0 while the owner writes
/// the rest: a member that does not take part in the operation reads the stamp before and after.
struct alignas(64) Line {
  std::atomic<uint64_t> stamp;        ///< Operation id + 1 once the rest is valid.
  std::atomic<uint64_t> call, shape;  ///< SignatureBits, with extras and element.
  std::atomic<uint32_t> extras;
  Where where;
  uint8_t reads;  ///< 1: this rank may read every member's private memory.
  std::atomic<uint16_t> element;
  union {
    std::byte data[kLineBytes];
    struct {
      uint64_t input_place;  ///< kMapped: offset in the owner's segment; kCopied: its address.
      uint64_t output_place;
    };
  };

  [[nodiscard]] SignatureBits signature() const {
    return {call.load(std::memory_order_relaxed), shape.load(std::memory_order_relaxed),
            extras.load(std::memory_order_relaxed), element.load(std::memory_order_relaxed)};
  }
  /// By the owner alone: the line is not valid from here on, until its stamp is stored.
  void begin(const SignatureBits& signature) {
    stamp.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    call.store(signature.call, std::memory_order_relaxed);
    shape.store(signature.shape, std::memory_order_relaxed);
    extras.store(signature.extras, std::memory_order_relaxed);
    element.store(signature.element, std::memory_order_relaxed);
  }
};
static_assert(sizeof(Line) == 64 && offsetof(Line, stamp) == 0 && offsetof(Line, call) == 8 &&
              offsetof(Line, shape) == 16 && offsetof(Line, extras) == 24 &&
              offsetof(Line, where) == 28 && offsetof(Line, reads) == 29 &&
              offsetof(Line, element) == 30 && offsetof(Line, data) == 32 &&
              offsetof(Line, input_place) == 32 && offsetof(Line, output_place) == 40);

/// One rank's part of one group's board. Counters only grow; each is written by the owner alone.
struct GroupSection {
  alignas(64) std::atomic<uint64_t> completed;  ///< Operations below this are over here: their
                                                ///< lines may be reused.
  std::atomic<uint64_t> failed;  ///< Not 0: the group failed here: code | (world rank + 1) << 8.
  std::atomic<uint64_t> stages;  ///< Where in the segment this rank's Stages are; 0: none yet.
                                 ///< Changes only between operations of all members.
  std::atomic<uint64_t> left;    ///< Not 0: this rank is out of the group.
  alignas(64) std::atomic<uint64_t> put;       ///< Staged chunks published.
  alignas(64) std::atomic<uint64_t> folded;    ///< Staged results published.
  alignas(64) std::atomic<uint64_t> taken;     ///< Staged chunks (and results) consumed.
  alignas(64) std::atomic<uint64_t> finished;  ///< How far the last direct operation is here: twice
                                               ///< its id; + 1: its own part is made; + 2: over.
  Line lines[kLines];
  std::byte slots[kSlots][kSlotBytes];
  char members[kMostMembersText];  ///< describe_members(), with a 0 behind; set once, before the
                                   ///< section can be found.
};
static_assert(offsetof(GroupSection, completed) == 0 && offsetof(GroupSection, failed) == 8 &&
              offsetof(GroupSection, stages) == 16 && offsetof(GroupSection, left) == 24 &&
              offsetof(GroupSection, put) == 64 && offsetof(GroupSection, folded) == 128 &&
              offsetof(GroupSection, taken) == 192 && offsetof(GroupSection, finished) == 256 &&
              offsetof(GroupSection, lines) == 320 && offsetof(GroupSection, slots) == 4416 &&
              offsetof(GroupSection, members) == 266'560 && sizeof(GroupSection) == 266'816);

/// The staging buffers of one rank, for one lane at a time (stage_pool.h).
struct Stages {
  std::byte stage[kStages][kStageBytes];
  std::byte results[kStages][kStageBytes];
};
static_assert(offsetof(Stages, results) == 524'288 && sizeof(Stages) == 1'048'576);

/// Values of SegmentHeader::sleeping. Peers ring the doorbell: never while kAwake; for messages
/// while kIdle (nothing in flight); for messages and the board while kAsleep; for freed lines too
/// while kAsleepForLines.
enum : uint32_t { kAwake = 0, kIdle = 1, kAsleep = 2, kAsleepForLines = 3 };

/// Members with higher numbers cannot be told goodbye here.
inline constexpr int32_t kMostGoodbyes = 31'744;

struct SegmentHeader {
  uint64_t magic;
  uint64_t bytes;
  alignas(64) std::atomic<uint32_t> sleeping;
  /// A bit for each member: the owner has left in an orderly way, and there was no stream between
  /// the two on which it could have said so.
  alignas(64) std::atomic<uint64_t> goodbyes[kMostGoodbyes / 64];

  void say_goodbye_to(int32_t member) {
    if (member >= kMostGoodbyes) return;
    const auto i = static_cast<size_t>(member);
    goodbyes[i / 64].fetch_or(uint64_t{1} << (i % 64), std::memory_order_seq_cst);
  }
  [[nodiscard]] bool has_said_goodbye_to(int32_t member) const {
    if (member >= kMostGoodbyes) return false;
    const auto i = static_cast<size_t>(member);
    return (goodbyes[i / 64].load(std::memory_order_seq_cst) >> (i % 64) & 1U) != 0;
  }
};
static_assert(offsetof(SegmentHeader, magic) == 0 && offsetof(SegmentHeader, bytes) == 8 &&
              offsetof(SegmentHeader, sleeping) == 64 && offsetof(SegmentHeader, goodbyes) == 128 &&
              sizeof(SegmentHeader) == 4096);

/// `place` is stored last and cleared first: who finds the same place before and after has read
/// what belongs to it.
struct SectionEntry {
  std::atomic<uint64_t> place;  ///< Of the section in the segment; 0: free.
  std::atomic<uint64_t> epoch, lane;
  uint64_t reserved;
};

/// One page of the table of sections. The first is behind the header, the others are on the heap.
struct SectionTable {
  std::atomic<uint64_t> next;  ///< Where in the segment the next one is; 0: none.
  alignas(64) SectionEntry entries[126];
};
static_assert(offsetof(SectionTable, entries) == 64 && sizeof(SectionTable) == 4096);

/// A section that was found. Sections of a peer may be gone: Segment::names() knows.
struct SectionView {
  const SectionEntry* entry = nullptr;
  uint64_t place = 0;
  GroupSection* section = nullptr;
};

/// The members that a section names: foreign text, without control characters.
[[nodiscard]] std::string members_of(const GroupSection& section);

/// The ends of a range that share pages with others: [0, head) and [tail, bytes). Between them are
/// whole pages.
struct Edges {
  uint64_t head, tail;
};
[[nodiscard]] Edges edges_of(uint64_t offset, uint64_t bytes);

/// Own segments are thread-safe where marked. A peer's segment is thread-safe, and read through its
/// atomics only.
///
/// A segment has as much address space as its machine has memory, and a host has many ranks. So of
/// a peer's segment attach() maps the first kWindowBytes, and at() maps more when a range is asked
/// for that ends behind them: a view of the first 2, 4, 8 ... windows, the shortest that holds the
/// range. Every view begins where the segment does, so any range lies in one piece, and the same
/// range has the same address every time. Views stay until the segment goes, and so do pointers
/// into them; all together have less than four times the bytes up to the furthest range.
class Segment {
 public:
  /// Holds the sections of 50 lanes beside the areas that a StagePool keeps: a job whose arenas are
  /// small looks no further. 256 ranks of a host map 4 GiB of each other.
  static constexpr size_t kWindowBytes = size_t{16} << 20U;

  /// Makes this process's segment with a heap of `heap_bytes` (address space; memory is committed
  /// as it is used). What is taken of it is Metric::kArenaBytes.
  static Result<std::unique_ptr<Segment>> create(size_t heap_bytes, obs::Metrics metrics = {});
  /// Maps the start of a peer's segment; refuses one whose size or header is wrong.
  static Result<std::unique_ptr<Segment>> attach(io::Fd fd);

  [[nodiscard]] SegmentHeader& header() const;
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] size_t bytes() const { return bytes_; }

  /// Makes a section, zeroed and committed, and names it in the table. `members`: of its group, as
  /// describe_members() writes them.
  Result<SectionView> open_section(const LaneKey& key, std::string_view members);
  /// Takes an own section out of the table: nobody finds it from now on.
  void hide_section(const SectionView& view);
  /// Frees an own, hidden section; only once no member can look at it any more.
  void free_section(const SectionView& view);
  /// Finds a section in this (a peer's) segment. Fails as at() does.
  [[nodiscard]] Result<std::optional<SectionView>> find_section(const LaneKey& key) const;
  /// True while the table says that it is there.
  [[nodiscard]] static bool names(const SectionView& view) {
    return view.entry->place.load(std::memory_order_seq_cst) == view.place;
  }
  /// The stages of a peer's section; null while there are none, or if they are not in its heap.
  /// Fails as at() does.
  [[nodiscard]] Result<Stages*> stages_of(const GroupSection& section) const;

  /// Arena memory, zero-filled, page-aligned. Thread-safe.
  Result<std::byte*> allocate(size_t size);
  void free(std::byte* memory);
  /// Lets late stores of peers into the whole pages of a range in the heap go astray: these pages
  /// become private, with their contents, and are not found by offset_of() any more. When the
  /// allocation is freed, its addresses are not used again. Thread-safe.
  Status set_apart(std::byte* memory, size_t size);
  /// Before fork(): takes the heap's lock, so that the child finds the heap whole. Externally
  /// synchronized, as the two that follow it.
  void before_fork();
  void after_fork_in_parent();
  /// What is allocated becomes this process's own: a store does not reach the parent or its peers.
  /// A page that the child has not stored to yet shows what they store. Where the system refuses
  /// that, the child can only read.
  void after_fork_in_child();
  /// Offset of a range that lies wholly in the heap and is shared, else nullopt. Thread-safe.
  [[nodiscard]] std::optional<uint64_t> offset_of(const std::byte* memory, size_t size) const;
  /// The address of `size` bytes at a foreign offset; null when outside the heap.
  /// RESOURCE_EXHAUSTED if they are not mapped yet and cannot be. Thread-safe; without a lock once
  /// they are mapped.
  [[nodiscard]] Result<std::byte*> at(uint64_t offset, size_t size) const;

 private:
  struct Heap {
    std::map<uint64_t, uint64_t> free, used;  ///< Offset to size.
    std::map<uint64_t, uint64_t> apart;       ///< Private pages.

    [[nodiscard]] bool touches_apart(uint64_t offset, uint64_t size) const;
    /// Calls `visit(offset, size)` for ranges that hold all that is used and not private, until it
    /// fails.
    template <typename Visit>
    Status for_each_shared(const Visit& visit) const;
  };
  Segment(io::Fd fd, io::Mapping mapping, size_t bytes);
  [[nodiscard]] SectionTable* first_table() const;
  /// Like at(); null for what does not begin with a page, too.
  [[nodiscard]] Result<std::byte*> page_at(uint64_t place, size_t size) const;
  /// Maps the first kWindowBytes << `doublings`, unless another thread has, and returns its start.
  Result<std::byte*> map_view(size_t doublings) const;
  Result<SectionEntry*> take_entry();

  io::Fd fd_;
  io::Mapping mapping_;  ///< Of an own segment all of it; of a peer's the first window.
  const size_t bytes_;
  mutable Guarded<std::vector<io::Mapping>> views_;
  /// By doublings: where a view starts; null until it is mapped. So many hold the largest memfd.
  mutable std::array<std::atomic<std::byte*>, 40> view_starts_{};
  mutable Guarded<Heap> heap_;
  std::optional<Guarded<Heap>::Held> held_for_fork_;
  obs::Metrics metrics_;  ///< Written with the heap's lock.
  std::atomic<bool> any_apart_{false};
  /// Of an own segment: tables and entries as its owner knows them, not as peers may have left
  /// them.
  SectionTable* last_table_ = nullptr;
  std::vector<SectionEntry*> free_entries_;
};

}  // namespace corro::collective
