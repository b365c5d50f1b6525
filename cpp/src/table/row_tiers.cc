#include "table/row_tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace corro::table {
namespace {

/// The index may have so much of the budget; rows have the rest.
constexpr uint64_t index_share(uint64_t most_bytes) { return most_bytes / 4 * 3; }

}  // namespace

RowTiers::RowTiers(const Options& options, std::unique_ptr<Disk> disk, Numbers& numbers)
    : options_(options),
      numbers_(numbers),
      slots_((options.row_bytes + kHeadBytes + alignof(Head) - 1) / alignof(Head) * alignof(Head)),
      log_(options.table, options.row_bytes + sizeof(uint64_t), std::move(disk),
           options.segment_bytes) {}

// -- room -----------------------------------------------------------------------------------------

/// Of rows in memory.
uint64_t RowTiers::room() const {
  return options_.most_bytes - std::min<uint64_t>(options_.most_bytes, index_bytes_);
}

bool RowTiers::fits_one_more() const { return slots_.bytes() + slots_.bytes_of_next() <= room(); }

Status RowTiers::prepare(const Need& need) {
  // An index is 7/10 full at least.
  const uint64_t index =
      std::max<uint64_t>(index_bytes_, (need.rows + need.added) * need.entry_bytes * 10 / 7);
  if (need.added > 0 && index > index_share(options_.most_bytes))
    return {Code::kResourceExhausted,
            fmt::format("table {}: {} rows and {} more would need {} bytes of index in memory; of "
                        "a budget of {} the index may have three quarters: raise budget, add "
                        "servers, or let rows go (evict_after)",
                        options_.table, need.rows, need.added, index, options_.most_bytes)};
  // What settle() cools to give the index its memory.
  const uint64_t shrinks = (index - index_bytes_ + 2 * kHugePage) / options_.row_bytes;
  return log_.reserve(need.brought + need.added + std::min<uint64_t>(shrinks, slots_.count()),
                      *this);
}

void RowTiers::settle() {
  constexpr size_t kBlocksForBlock = 4;
  while (slots_.bytes() > room() && slots_.can_shrink()) {
    const uint32_t first = slots_.capacity_when_shrunk();
    for (uint32_t slot = first; slot < slots_.used(); ++slot)
      if (head_of(slot).state != 0 && !cool(slot)) return;
    slots_.shrink();
    if (hand_ >= slots_.used()) hand_ = 0;
  }
  const uint64_t written = log_.counts().written - compacted_at_;
  log_.compact(kBlocksForBlock * (written / log_.block_records()), *this);
  compacted_at_ = log_.counts().written - written % log_.block_records();
}

// -- slots ----------------------------------------------------------------------------------------

uint32_t RowTiers::put(uint64_t key, uint32_t home, uint32_t state) {
  const uint32_t slot = slots_.take();
  head_of(slot) = {.home = home, .state = state, .key = key};
  return slot;
}

/// Without room in the log the row is kept in memory all the same, rather than another one lost.
uint32_t RowTiers::take(uint64_t key) {
  if (slots_.bytes_of_next() > 0 && !fits_one_more()) (void)cool_one();
  return put(key, kNone, kTaken);
}

void RowTiers::warm_up(uint64_t key, uint32_t number, const std::byte* row) {
  if (slots_.bytes_of_next() > 0 && !fits_one_more() && !cool_one()) return;
  const uint32_t slot = put(key, number & ~kCold, kTaken);
  std::memcpy(at(slot), row, options_.row_bytes);
  numbers_.set_number(key, slot);
  ++warmed_;
}

void RowTiers::give(uint32_t number) {
  if (is_cold(number)) return log_.drop(number & ~kCold);
  Head& head = head_of(number);
  if (head.home != kNone) log_.drop(head.home);
  head.state = 0;
  slots_.give(number);
}

void RowTiers::change(uint32_t slot) {
  Head& head = head_of(slot);
  if (head.home != kNone) log_.drop(std::exchange(head.home, kNone));
  head.state = kTaken | kTouched;
}

/// What the hand comes to soon, and the index entries of what it comes to sooner.
void RowTiers::prefetch_at_hand() const {
  if (hand_ + 6 >= slots_.used()) return;
  __builtin_prefetch(&head_of(hand_ + 6));
  const Head& later = head_of(hand_ + 4);
  if (later.state == kTaken) numbers_.prefetch_tags_of(later.key);
  const Head& sooner = head_of(hand_ + 2);
  if (sooner.state == kTaken) numbers_.prefetch_entry_of(sooner.key);
}

/// Moves the hand on, to the first row that was not touched since it was there. After kMostTouched
/// rows that were all touched, or that found no room in the log, the next one is cooled or none.
bool RowTiers::cool_one() {
  constexpr uint32_t kMostTouched = 64;
  if (slots_.count() == 0) return false;
  for (uint32_t passed = 0; passed <= 2 * kMostTouched;) {
    prefetch_at_hand();
    const uint32_t slot = hand_;
    hand_ = hand_ + 1 >= slots_.used() ? 0 : hand_ + 1;
    Head& head = head_of(slot);
    if (head.state == 0) continue;
    if (++passed <= kMostTouched && (head.state & kTouched) != 0) {
      head.state = kTaken;
      continue;
    }
    if (cool(slot)) return true;
  }
  return false;
}

bool RowTiers::cool(uint32_t slot) {
  Head& head = head_of(slot);
  if (head.home == kNone) {
    const auto place = log_.append(slots_.at(slot) + kKeyAt);
    if (!place) return false;
    head.home = *place;
  }
  numbers_.set_number(head.key, kCold | head.home);
  head.state = 0;
  slots_.give(slot);
  return true;
}

// -- the log --------------------------------------------------------------------------------------

Status RowTiers::read(std::span<const uint32_t> numbers, const RowLog::Visit& visit) {
  std::vector<uint32_t> places(numbers.begin(), numbers.end());
  for (uint32_t& place : places) place &= ~kCold;
  return log_.read(
      places, [&visit](size_t i, const std::byte* record) { visit(i, record + sizeof(uint64_t)); });
}

/// A clean row lives in memory: it loses its place, and is written when it is cooled.
bool RowTiers::lives(const std::byte* record, uint32_t place) {
  uint64_t key = 0;
  std::memcpy(&key, record, sizeof key);
  const uint32_t number = numbers_.number_of(key);
  if (number == kNone || is_cold(number)) return number == (kCold | place);
  Head& head = head_of(number);
  if (head.home == place) log_.drop(std::exchange(head.home, kNone));
  return false;
}

void RowTiers::moved(const std::byte* record, uint32_t from, uint32_t to) {
  uint64_t key = 0;
  std::memcpy(&key, record, sizeof key);
  numbers_.set_number(key, kCold | to);
  log_.drop(from);
}

void RowTiers::count(TableStats& stats) const {
  const RowLog::Counts& log = log_.counts();
  stats.bytes = bytes();
  stats.rows_in_memory = slots_.count();
  stats.disk_bytes = log.bytes;
  stats.disk_reads = log.reads;
  stats.rows_written = log.written;
  stats.rows_warmed = warmed_;
}

}  // namespace corro::table
