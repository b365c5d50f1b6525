#include "table/index.h"

#include <algorithm>
#include <cstddef>

namespace corro::table {
namespace {

constexpr uint32_t kStaggered = 1024;  ///< From this size on, shards have sizes of their own.

constexpr uint32_t whole_groups(uint32_t places) { return (places + kGroup - 1) / kGroup * kGroup; }

}  // namespace

Index::Index(uint32_t shard, bool dated) : Index(shard, dated, kGroup) {}

Index::Index(uint32_t shard, bool dated, uint32_t capacity)
    : shard_(shard), dated_(dated), capacity_(capacity), memory_(capacity * place_bytes(dated)) {}

uint32_t Index::insert(uint64_t hash, uint64_t key, uint32_t slot) {
  uint32_t group = first_of(hash);
  uint32_t open = ~match_high(tags() + group) & 0xffffU;
  while (open == 0) {
    group = next_group(group);
    open = ~match_high(tags() + group) & 0xffffU;
  }
  const uint32_t place = group + lowest(open);
  if (tags()[place] == kEmpty) ++filled_;
  ++entries_;
  tags()[place] = tag_of(hash);
  keys()[place] = key;
  slots()[place] = slot;
  if (dated_) dates()[place] = 0;
  return place;
}

void Index::erase(uint32_t place) {
  const bool passed = match(tags() + size_t{place / kGroup} * kGroup, kEmpty) == 0;
  tags()[place] = passed ? kErased : kEmpty;
  if (!passed) --filled_;
  --entries_;
}

size_t Index::bytes_to_grow() const {
  if (!crowded() || many_erased()) return 0;
  return Block::size_of(next_capacity() * place_bytes(dated_)) - bytes();
}

/// Half as many again while it is small, then a quarter.
uint32_t Index::next_capacity() const {
  if (capacity_ >= kStaggered) return whole_groups(capacity_ + capacity_ / 4);
  const uint32_t next = capacity_ + capacity_ / 2;
  return whole_groups(next < kStaggered ? next : kStaggered + kStaggered / 4 * shard_ / 64);
}

/// Of these places 0.85 are taken in the first shard and 0.77 in the last one, so that shards which
/// grow further do so one by one.
uint32_t Index::capacity_for(uint32_t entries) const {
  const double places = entries * (1.18 + 0.12 * shard_ / 64);
  constexpr double kMost = kSlots;
  return whole_groups(static_cast<uint32_t>(std::min(places, kMost)) + kGroup);
}

}  // namespace corro::table
