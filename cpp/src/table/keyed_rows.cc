#include "table/keyed_rows.h"

#include <algorithm>

#include "table/tag_group.h"

namespace corro::table {

KeyedRows::KeyedRows(const TableSpec& spec, size_t row_bytes, std::unique_ptr<Disk> disk,
                     uint64_t segment_bytes)
    : seed_(seed_for(Use::kIndex, spec.seed)), retention_(spec.retention), rows_(row_bytes) {
  if (disk) {
    tiers_ = std::make_unique<RowTiers>(RowTiers::Options{.table = spec.name,
                                                          .most_bytes = retention_.most_bytes,
                                                          .row_bytes = row_bytes,
                                                          .segment_bytes = segment_bytes},
                                        std::move(disk), static_cast<RowTiers::Numbers&>(*this));
    retention_.most_bytes = 0;
  }
  if (retention_.least_pushes > 1) sketch_.emplace(spec.seed, retention_.least_pushes);
  shards_.reserve(kShards);
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    shards_.emplace_back(shard, retention_.idle_steps != 0);
    index_bytes_ += shards_.back().bytes();
  }
  if (tiers_) tiers_->set_index_bytes(index_bytes_);
}

uint32_t KeyedRows::make(uint64_t hash, uint64_t key) {
  Index& index = index_of(hash);
  if (retention_.idle_steps != 0) remove_idle(index, hash, key);
  if (sketch_ && !sketch_->admits(key)) return kNone;
  make_place_in(static_cast<uint32_t>(hash >> kShardShift));
  const uint32_t slot = take(key);
  const uint32_t place = index.insert(hash, key, slot);
  if (retention_.idle_steps != 0) index.set_date(place, step_);
  ++admitted_;
  return slot;
}

uint32_t KeyedRows::date_of(uint64_t hash, uint64_t key) const {
  if (retention_.idle_steps == 0) return 0;
  const Index& index = index_of(hash);
  return index.date_at(index.find(hash, key));
}

uint32_t KeyedRows::put(uint64_t hash, uint64_t key, uint32_t date) {
  Index& index = index_of(hash);
  uint32_t place = index.find(hash, key);
  if (place == kNone) {
    make_place_in(static_cast<uint32_t>(hash >> kShardShift));
    place = index.insert(hash, key, take(key));
  } else if (tiers_ && RowTiers::is_cold(index.number_at(place))) {
    const uint32_t slot = tiers_->take(key);
    tiers_->give(index.number_at(place));
    index.set_number(place, slot);
  } else if (tiers_) {
    tiers_->change(index.number_at(place));
  }
  if (retention_.idle_steps != 0) index.set_date(place, date);
  return index.slot_at(place);
}

/// Keys are spread evenly over the shards; one that has more grows.
void KeyedRows::reserve(uint64_t rows) {
  if (retention_.most_bytes != 0 || tiers_) return;
  const auto entries = static_cast<uint32_t>(std::min<uint64_t>(rows, Index::kSlots) / kShards);
  for (Index& index : shards_) {
    const size_t before = index.bytes();
    index.reserve(entries, [this](uint64_t key) { return hash(key); });
    index_bytes_ += index.bytes() - before;
  }
}

/// The key's own row may be there still, idle.
void KeyedRows::remove_idle(Index& index, uint64_t hash, uint64_t key) {
  const uint32_t place = index.find(hash, key);
  if (place != kNone) remove(index, place);
}

bool KeyedRows::fits_one_more(const Index& index) const {
  if (retention_.most_bytes == 0) return true;
  const size_t more = rows_.bytes_of_next() + index.bytes_to_grow();
  return rows_.count() < Index::kSlots &&
         rows_.bytes() + index_bytes_ + more <= retention_.most_bytes;
}

/// For one row more in the shard, and its entry. If there is no memory for them, a row of the same
/// shard goes: that gives both. If the shard has none, one of the next shard that has some.
void KeyedRows::make_place_in(uint32_t shard) {
  Index& index = shards_[shard];
  const bool fits = fits_one_more(index);
  for (uint32_t i = 0; !fits && i < kShards; ++i) {
    if (evict_from((shard + i) % kShards)) break;
  }
  const size_t before = index.bytes();
  index.make_room([this](uint64_t key) { return hash(key); }, fits);
  index_bytes_ += index.bytes() - before;
  if (tiers_) tiers_->set_index_bytes(index_bytes_);
}

bool KeyedRows::evict_from(uint32_t shard) {
  const uint32_t place = next_cold(shard);
  if (place == kNone) return false;
  remove(shards_[shard], place);
  return true;
}

/// Moves the shard's hand on, to the first place whose row was not touched since the hand was there.
uint32_t KeyedRows::next_cold(uint32_t shard) {
  constexpr uint32_t kMostTouched = 64;
  Index& index = shards_[shard];
  if (index.entries() == 0) return kNone;
  uint32_t& hand = hands_.at(shard);
  for (uint32_t touched = 0;;) {
    const uint32_t group = hand / kGroup * kGroup;
    const uint32_t ahead = index.entries_of(group) >> (hand - group);
    if (ahead == 0) {
      hand = group + kGroup == index.capacity() ? 0 : group + kGroup;
      continue;
    }
    const uint32_t place = hand + lowest(ahead);
    hand = place + 1 == index.capacity() ? 0 : place + 1;
    if (!index.used_at(place) || ++touched > kMostTouched) return place;
    index.clear_used(place);
  }
}

void KeyedRows::remove(Index& index, uint32_t place) {
  give(index, place);
  index.erase(place);
  ++evicted_;
}

uint32_t KeyedRows::take(uint64_t key) { return tiers_ ? tiers_->take(key) : rows_.take(); }

void KeyedRows::give(const Index& index, uint32_t place) {
  if (tiers_) {
    tiers_->give(index.number_at(place));
  } else {
    rows_.give(index.slot_at(place));
  }
}

// -- tiers ----------------------------------------------------------------------------------------

Status KeyedRows::prepare(size_t cold, size_t added) {
  return tiers_->prepare({.rows = entries(),
                          .brought = cold,
                          .added = added,
                          .entry_bytes = Index::place_bytes(retention_.idle_steps != 0)});
}

uint64_t KeyedRows::entries() const {
  uint64_t sum = 0;
  for (const Index& index : shards_) sum += index.entries();
  return sum;
}

/// Also of a row that is idle, and not removed yet.
uint32_t KeyedRows::number_of(uint64_t key) const {
  const uint64_t hashed = hash(key);
  const Index& index = index_of(hashed);
  const uint32_t place = index.find(hashed, key);
  return place == kNone ? kNone : index.number_at(place);
}

void KeyedRows::set_number(uint64_t key, uint32_t number) {
  const uint64_t hashed = hash(key);
  Index& index = index_of(hashed);
  index.set_number(index.find(hashed, key), number);
}

void KeyedRows::begin_step(uint64_t step) {
  step_ = static_cast<uint32_t>(step);
  done_ = step_ - 1;
}

void KeyedRows::end_step(size_t keys) {
  constexpr size_t kKeysOfGroup = 8;
  done_ = step_;
  if (retention_.idle_steps != 0) sweep(1 + keys / kKeysOfGroup);
  if (tiers_) tiers_->settle();
}

void KeyedRows::sweep(size_t groups) {
  for (; groups > 0; --groups) {
    Index& index = shards_[swept_shard_];
    for (uint32_t full = index.entries_of(swept_group_); full != 0; full &= full - 1) {
      const uint32_t place = swept_group_ + lowest(full);
      if (idle_at(index, place)) remove(index, place);
    }
    swept_group_ += kGroup;
    if (swept_group_ < index.capacity()) continue;
    swept_group_ = 0;
    swept_shard_ = (swept_shard_ + 1) % kShards;
  }
}

TableStats KeyedRows::stats() const {
  TableStats stats{.rows = rows_.count(),
                   .bytes = rows_.bytes() + index_bytes_,
                   .evicted = evicted_,
                   .admitted = admitted_};
  if (!tiers_) return stats;
  stats.rows = entries();
  tiers_->count(stats);
  return stats;
}

}  // namespace corro::table
