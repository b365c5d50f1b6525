// KeyedRows: which keys have a row, where it is, and how long it stays.
//
// A key's hash says its shard (the highest 6 bits) and where in the shard's index to begin
// (index.h). A shard grows by itself, so that a push waits for a 64th of the table at most.
//
// Retention says what makes a row and what takes it away. Only pushes count, so that servers that do
// the same pushes have the same rows, whatever is pulled from them:
//
//   least_pushes  make() asks a Sketch; a key that it does not admit has no row.
//   idle_steps    The index keeps the step that touched a row last. A row that is idle is not found
//                 any more, at once; its memory comes back when the sweep finds it. A push sweeps
//                 two places for each of its keys: there are at most idle_steps times the keys of a
//                 push, so a round takes less than idle_steps pushes.
//   most_bytes    A new row that needs more memory than that takes the place of another of its
//                 shard: of the first that no push has touched since the shard's hand last went by
//                 (CLOCK; Corbato, "A paging experiment with the Multics system", 1968). A new row
//                 is not touched yet: keys that come once go before others. After 64 rows that
//                 were all touched, the next one goes.
//   spill           No row goes for most_bytes. Rows have numbers in the place of slots, and RowTiers
//                   says which of them are in memory (row_tiers.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "table/hash.h"
#include "table/index.h"
#include "table/row_tiers.h"
#include "table/rows.h"
#include "table/sketch.h"
#include "table/types.h"

namespace corro::table {

/// Externally synchronized.
class KeyedRows final : private RowTiers::Numbers {
 public:
  static constexpr uint32_t kNone = Index::kNone;

  /// `disk`: for the rows beyond most_bytes, in segments of that size; null: those go.
  KeyedRows(const TableSpec& spec, size_t row_bytes, std::unique_ptr<Disk> disk,
            uint64_t segment_bytes);

  [[nodiscard]] uint64_t hash(uint64_t key) const { return hash_of(seed_, key); }

  /// A search waits for memory three times: for the tags, for the entry, for the row.
  void prefetch_tags(uint64_t hash) const { index_of(hash).prefetch_tags(hash); }
  void prefetch_entry(uint64_t hash) const { index_of(hash).prefetch_entry(hash); }
  /// The second stage of put(), which makes most rows that it is asked for.
  void prefetch_place(uint64_t hash) const {
    index_of(hash).prefetch_entry(hash);
    index_of(hash).prefetch_free(hash);
  }
  void prefetch_row(uint32_t slot) const { rows_.prefetch(slot); }

  /// The slot of a key's row, or kNone.
  [[nodiscard]] uint32_t find(uint64_t hash, uint64_t key) const {
    const Index& index = index_of(hash);
    const uint32_t place = index.find(hash, key);
    return place == kNone || idle_at(index, place) ? kNone : index.slot_at(place);
  }
  /// The same for a push, which touches the row.
  [[nodiscard]] uint32_t touch(uint64_t hash, uint64_t key) {
    Index& index = index_of(hash);
    const uint32_t place = index.find(hash, key);
    if (place == kNone || idle_at(index, place)) return kNone;
    if (retention_.idle_steps != 0) index.set_date(place, step_);
    if (retention_.most_bytes != 0) index.set_used(place);
    return index.slot_at(place);
  }
  /// Null without `spill`. With it the following two are in the place of find() and touch(), and
  /// what returns a slot returns one of it.
  [[nodiscard]] RowTiers* tiers() const { return tiers_.get(); }
  /// The number of a key's row, or kNone.
  [[nodiscard]] uint32_t find_number(uint64_t hash, uint64_t key) const {
    const Index& index = index_of(hash);
    const uint32_t place = index.find(hash, key);
    return place == kNone || idle_at(index, place) ? kNone : index.number_at(place);
  }
  /// Memory and disk have room for a push or an import of keys, of which `cold` have rows on disk and
  /// `added` have none. As RowTiers::prepare().
  [[nodiscard]] Status prepare(size_t cold, size_t added);

  /// A push touches the row of a key that has one; bring() also brings it into memory from the disk,
  /// with anything in it, and returns its slot.
  void set_date(uint64_t hash, uint64_t key) {
    if (retention_.idle_steps == 0) return;
    Index& index = index_of(hash);
    index.set_date(index.find(hash, key), step_);
  }
  [[nodiscard]] uint32_t bring(uint64_t hash, uint64_t key) { return put(hash, key, step_); }

  /// Makes a row, with anything in it, for a key that touch() did not find; kNone if the key has to
  /// come more often. Other rows may go: then evicted() is another, and their slots are no more.
  [[nodiscard]] uint32_t make(uint64_t hash, uint64_t key);

  /// Calls `visit`, of the type void(uint64_t key), for each key that has a row.
  template <typename Visit>
  void for_each_key(const Visit& visit) const {
    for (const Index& index : shards_)
      for (uint32_t group = 0; group < index.capacity(); group += kGroup)
        for (uint32_t full = index.entries_of(group); full != 0; full &= full - 1)
          if (const uint32_t place = group + lowest(full); !idle_at(index, place))
            visit(index.key_at(place));
  }
  /// The step that touched a key's row last, modulo 2^32; 0 where rows do not become idle.
  [[nodiscard]] uint32_t date_of(uint64_t hash, uint64_t key) const;
  /// The slot of a key's row, which is in memory then, with anything in it if it was not; makes one,
  /// whatever retention says.
  [[nodiscard]] uint32_t put(uint64_t hash, uint64_t key, uint32_t date);
  /// The key has a row, which goes.
  void take_out(uint64_t hash, uint64_t key) {
    Index& index = index_of(hash);
    const uint32_t place = index.find(hash, key);
    give(index, place);
    index.erase(place);
  }
  /// Memory of the index for so many rows in all, at once. Nothing where there is a budget.
  void reserve(uint64_t rows);
  /// So many steps are done.
  void set_steps(uint64_t steps) { step_ = done_ = static_cast<uint32_t>(steps); }

  /// The row of a slot, until the next make().
  [[nodiscard]] std::byte* at(uint32_t slot) const { return rows_.at(slot); }

  /// A push touches rows between these two.
  void begin_step(uint64_t step);
  void end_step(size_t keys);

  /// True if so many rows more may be needed than there are slots.
  [[nodiscard]] bool lacks_slots(size_t keys) const {
    return retention_.most_bytes == 0 && rows_.count() + keys > Index::kSlots;
  }
  /// Bytes are those of rows and index, not the sketch's.
  [[nodiscard]] TableStats stats() const;
  [[nodiscard]] uint64_t evicted() const { return evicted_; }

 private:
  static constexpr uint32_t kShards = 64;
  static constexpr unsigned kShardShift = 58;

  [[nodiscard]] const Index& index_of(uint64_t hash) const { return shards_[hash >> kShardShift]; }
  [[nodiscard]] Index& index_of(uint64_t hash) { return shards_[hash >> kShardShift]; }
  /// True if no step has touched the row in idle_steps steps that are done. Steps are compared
  /// modulo 2^32.
  [[nodiscard]] bool idle_at(const Index& index, uint32_t place) const {
    if (retention_.idle_steps == 0) return false;
    const auto idle = static_cast<int32_t>(done_ - index.date_at(place));
    return idle >= static_cast<int32_t>(retention_.idle_steps);
  }

  void remove_idle(Index& index, uint64_t hash, uint64_t key);
  [[nodiscard]] bool fits_one_more(const Index& index) const;
  void make_place_in(uint32_t shard);
  [[nodiscard]] bool evict_from(uint32_t shard);
  [[nodiscard]] uint32_t next_cold(uint32_t shard);
  void remove(Index& index, uint32_t place);
  [[nodiscard]] uint32_t take(uint64_t key);
  void give(const Index& index, uint32_t place);
  [[nodiscard]] uint64_t entries() const;
  [[nodiscard]] uint32_t number_of(uint64_t key) const override;
  void set_number(uint64_t key, uint32_t number) override;
  void prefetch_tags_of(uint64_t key) const override { prefetch_tags(hash(key)); }
  void prefetch_entry_of(uint64_t key) const override { prefetch_entry(hash(key)); }
  void sweep(size_t groups);

  uint64_t seed_;
  Retention retention_;
  std::optional<Sketch> sketch_;
  std::vector<Index> shards_;
  std::array<uint32_t, kShards> hands_{};  ///< Where each shard looks for a cold row next.
  Rows rows_;                              ///< Without tiers.
  std::unique_ptr<RowTiers> tiers_;
  size_t index_bytes_ = 0;
  uint32_t step_ = 0;         ///< Of the push that is under way, modulo 2^32.
  uint32_t done_ = 0;         ///< The last step that is done.
  uint32_t swept_shard_ = 0;  ///< The next group that the sweep looks at.
  uint32_t swept_group_ = 0;
  uint64_t evicted_ = 0;
  uint64_t admitted_ = 0;
};

}  // namespace corro::table
