// Index: which slot the row of a key has, for one shard of a table. Open addressing.
//
//   const uint32_t place = entries.find(hash, key);
//   if (place == Index::kNone) entries.insert(hash, key, slot);
//
// A *place* is where an entry stands: 13 bytes in three arrays, a tag, a key and a slot; with dates
// 17 bytes in four. Places stand in groups of 16. A key's entry is in the first group, from the one
// that its hash says on, that had a free place when the key came. A search goes from group to group
// until the tags of one show an empty place, for behind that no entry of the key can be:
//
//   tag      0: empty         1: an entry was here         128 to 255: an entry; 7 bits of its hash
//
// An entry that is erased leaves a 1 if its group is full, since others may have gone past it, and
// else a 0. When 7/8 of the places are not empty, the index grows by a quarter, and copies its
// entries; or it keeps its size, if a sixteenth of the places are 1s. So 7/10 to 7/8 of the places
// are taken; what each shard begins its steps with differs, so that they grow one by one.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "table/block.h"
#include "table/tag_group.h"

namespace corro::table {

/// Externally synchronized.
class Index {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t kSlots = 1U << 31U;  ///< Slots are below it.

  /// Of an entry.
  [[nodiscard]] static constexpr size_t place_bytes(bool dated) { return dated ? 17 : 13; }

  /// `shard` in [0, 64) says where its steps of growth begin. Entries have dates if `dated`.
  Index(uint32_t shard, bool dated);

  /// Three stages of a search; each wants what the one before asked the memory for.
  void prefetch_tags(uint64_t hash) const { __builtin_prefetch(tags() + first_of(hash)); }
  void prefetch_entry(uint64_t hash) const {
    const uint32_t group = first_of(hash);
    const uint32_t equal = match(tags() + group, tag_of(hash));
    if (equal == 0) return;
    const uint32_t place = group + lowest(equal);
    __builtin_prefetch(keys() + place);
    __builtin_prefetch(slots() + place);
  }
  /// The second stage for a key that is about to be inserted.
  void prefetch_free(uint64_t hash) const {
    const uint32_t group = first_of(hash);
    const uint32_t free = ~match_high(tags() + group) & 0xffffU;
    if (free == 0) return;
    const uint32_t place = group + lowest(free);
    __builtin_prefetch(keys() + place, 1);
    __builtin_prefetch(slots() + place, 1);
  }
  /// The place of the key's entry, or kNone. It holds until the next make_room().
  [[nodiscard]] uint32_t find(uint64_t hash, uint64_t key) const {
    const uint8_t tag = tag_of(hash);
    for (uint32_t group = first_of(hash);; group = next_group(group)) {
      for (uint32_t equal = match(tags() + group, tag); equal != 0; equal &= equal - 1) {
        const uint32_t place = group + lowest(equal);
        if (keys()[place] == key) return place;
      }
      if (match(tags() + group, kEmpty) != 0) return kNone;
    }
  }

  /// Adds a key that has no entry; returns its place. Its date is 0, and it is not used.
  /// make_room() comes before it.
  uint32_t insert(uint64_t hash, uint64_t key, uint32_t slot);
  void erase(uint32_t place);

  [[nodiscard]] uint32_t slot_at(uint32_t place) const { return slots()[place] & ~kUsed; }
  /// The slot and the bit of used_at(): all 32 bits, for whoever has another use for the bit.
  [[nodiscard]] uint32_t number_at(uint32_t place) const { return slots()[place]; }
  void set_number(uint32_t place, uint32_t number) { slots()[place] = number; }
  [[nodiscard]] uint64_t key_at(uint32_t place) const { return keys()[place]; }
  /// Bit i is set when there is an entry at `group` + i.
  [[nodiscard]] uint32_t entries_of(uint32_t group) const { return match_high(tags() + group); }

  /// A bit of each entry, of which the index knows nothing more.
  void set_used(uint32_t place) { slots()[place] |= kUsed; }
  void clear_used(uint32_t place) { slots()[place] &= ~kUsed; }
  [[nodiscard]] bool used_at(uint32_t place) const { return (slots()[place] & kUsed) != 0; }
  /// The same, of 32 bits; only with dates.
  void set_date(uint32_t place, uint32_t date) { dates()[place] = date; }
  [[nodiscard]] uint32_t date_at(uint32_t place) const { return dates()[place]; }

  [[nodiscard]] uint32_t entries() const { return entries_; }
  [[nodiscard]] uint32_t capacity() const { return capacity_; }
  [[nodiscard]] size_t bytes() const { return memory_.size(); }

  /// How many bytes more make_room() takes.
  [[nodiscard]] size_t bytes_to_grow() const;
  /// Sees to room for one entry more: copies the entries, if there is little, into more memory or,
  /// if many were erased, into as much. Without `may_grow` it takes no more memory; entries() may
  /// then never be more than before. `hash` is of the type uint64_t(uint64_t key).
  template <typename Hash>
  void make_room(const Hash& hash, bool may_grow = true) {
    if (!crowded()) return;
    if (many_erased()) {
      copy_into(Index(shard_, dated_, capacity_), hash);
    } else if (may_grow) {
      copy_into(Index(shard_, dated_, next_capacity()), hash);
    }
  }

  /// Memory for so many entries at once, where there is less. `hash` as above.
  template <typename Hash>
  void reserve(uint32_t entries, const Hash& hash) {
    const uint32_t wanted = capacity_for(entries);
    if (wanted > capacity_) copy_into(Index(shard_, dated_, wanted), hash);
  }

 private:
  static constexpr uint8_t kEmpty = 0;
  static constexpr uint8_t kErased = 1;

  static constexpr uint32_t kUsed = kSlots;

  Index(uint32_t shard, bool dated, uint32_t capacity);

  template <typename Hash>
  void copy_into(Index other, const Hash& hash) {
    for (uint32_t group = 0; group < capacity_; group += kGroup) {
      for (uint32_t full = entries_of(group); full != 0; full &= full - 1) {
        const uint32_t from = group + lowest(full);
        const uint64_t key = keys()[from];
        const uint32_t into = other.insert(hash(key), key, slots()[from]);
        if (dated_) other.dates()[into] = dates()[from];
      }
    }
    *this = std::move(other);
  }

  [[nodiscard]] static uint8_t tag_of(uint64_t hash) {
    return static_cast<uint8_t>(0x80U | (hash & 0x7fU));
  }
  /// The hash's bits 16 to 47, as a part of the number of groups.
  [[nodiscard]] uint32_t first_of(uint64_t hash) const {
    const uint64_t part = hash >> 16U & 0xffffffffU;
    return static_cast<uint32_t>(part * (capacity_ / kGroup) >> 32U) * kGroup;
  }
  [[nodiscard]] uint32_t next_group(uint32_t group) const {
    return group + kGroup == capacity_ ? 0 : group + kGroup;
  }
  [[nodiscard]] bool many_erased() const { return filled_ - entries_ >= capacity_ / 16; }
  [[nodiscard]] bool crowded() const { return filled_ >= capacity_ - capacity_ / 8; }
  [[nodiscard]] uint32_t next_capacity() const;
  [[nodiscard]] uint32_t capacity_for(uint32_t entries) const;

  [[nodiscard]] uint64_t* keys() const { return reinterpret_cast<uint64_t*>(memory_.data()); }
  [[nodiscard]] uint32_t* slots() const {
    return reinterpret_cast<uint32_t*>(memory_.data() + size_t{capacity_} * 8);
  }
  [[nodiscard]] uint8_t* tags() const {
    return reinterpret_cast<uint8_t*>(memory_.data() + size_t{capacity_} * 12);
  }

  [[nodiscard]] uint32_t* dates() const {
    return reinterpret_cast<uint32_t*>(memory_.data() + size_t{capacity_} * 13);
  }

  uint32_t shard_;
  bool dated_;
  uint32_t capacity_;  ///< Places: a multiple of 16.
  uint32_t entries_ = 0;
  uint32_t filled_ = 0;  ///< Places that are not empty.
  Block memory_;         ///< Keys, slots, tags, dates.
};

}  // namespace corro::table
