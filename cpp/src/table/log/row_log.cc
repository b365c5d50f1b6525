#include "table/log/row_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "checkpoint/crc32c.h"

namespace corro::table {
namespace {

constexpr size_t kBatchBytes = size_t{256} << 10U;
/// Of blocks that are read at once: many times what the disk does at a time, so that it seldom waits
/// for the last ones.
constexpr size_t kReadBytes = size_t{2} << 20U;
constexpr uint32_t kFreeSegments = 2;

constexpr size_t whole_units(size_t bytes) {
  return (bytes + kDiskUnit - 1) / kDiskUnit * kDiskUnit;
}

template <typename T>
T value_at(const std::byte* memory) {
  T value;
  std::memcpy(&value, memory, sizeof value);
  return value;
}

uint32_t checksum_of(const std::byte* block, size_t bytes) {
  return checkpoint::crc32c({block + sizeof(uint32_t), bytes - sizeof(uint32_t)});
}

}  // namespace

RowLog::RowLog(std::string table, size_t record_bytes, std::unique_ptr<Disk> disk,
               uint64_t segment_bytes)
    : table_(std::move(table)),
      record_bytes_(record_bytes),
      block_bytes_(whole_units(kHeadBytes + record_bytes)),
      block_records_((block_bytes_ - kHeadBytes) / record_bytes),
      batch_blocks_(
          std::max<size_t>(1, std::min<size_t>(kBatchBytes, segment_bytes) / block_bytes_)),
      segment_blocks_(std::max<size_t>(1, segment_bytes / block_bytes_ / batch_blocks_) *
                      batch_blocks_),
      disk_(std::move(disk)),
      batch_(make_buffer(batch_blocks_ * block_bytes_)),
      blocks_(make_buffer(std::max(kReadBytes, batch_blocks_ * block_bytes_))) {}

RowLog::Buffer RowLog::make_buffer(size_t bytes) {
  auto* const memory = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kDiskUnit}));
  std::memset(memory, 0, bytes);
  return Buffer(memory);
}

// -- room -----------------------------------------------------------------------------------------

uint64_t RowLog::room() const {
  const auto free =
      static_cast<uint64_t>(std::ranges::count(segments_, State::kFree, &Segment::state));
  if (open_ == kNone) return free * segment_records();
  const uint64_t done = (batch_block_ - open_ * segment_blocks_) * block_records_ + batch_records_;
  return free * segment_records() + segment_records() - done;
}

Status RowLog::reserve(size_t records, Owner& owner) {
  const uint64_t wanted = records + segment_records() / 2 + 1;
  Status status;
  while (status.ok() && room() < wanted) status = add_segment();
  if (!status.ok() && !make_room(wanted, owner))
    return status.with_context(fmt::format("table {}: no room for {} rows more beside {} on disk",
                                           table_, records, counts_.rows));
  if (!write_failure_.ok() && !write_batch())
    return write_failure_.with_context(fmt::format("table {}", table_));
  return {};
}

/// By compaction, where no segment can be added.
bool RowLog::make_room(uint64_t records, Owner& owner) {
  while (room() < records) {
    const uint64_t before = counts_.written;
    const uint32_t victim = victim_ == kNone ? choose_victim() : victim_;
    if (victim == kNone) return false;
    compact(segment_blocks_, owner);
    if (segments_[victim].state == State::kSealed && counts_.written == before) return false;
  }
  return true;
}

Status RowLog::add_segment() {
  const auto found = std::ranges::find(segments_, State::kAbsent, &Segment::state);
  const auto segment = static_cast<uint32_t>(found - segments_.begin());
  if ((segment + 1) * segment_records() >= kPlaces)
    return {Code::kResourceExhausted,
            fmt::format("a process has at most {} rows of a table on disk", uint64_t{kPlaces})};
  const uint64_t bytes = segment_blocks_ * block_bytes_;
  CORRO_TRY(disk_->reserve(segment * bytes, bytes));
  if (found == segments_.end()) segments_.emplace_back();
  segments_[segment].state = State::kFree;
  counts_.bytes += bytes;
  return {};
}

void RowLog::free_segment(uint32_t segment) {
  if (victim_ == segment) victim_ = kNone;
  const auto free = std::ranges::count(segments_, State::kFree, &Segment::state);
  segments_[segment] = {.state = State::kFree};
  if (free < kFreeSegments) return;
  const uint64_t bytes = segment_blocks_ * block_bytes_;
  disk_->release(segment * bytes, bytes);
  segments_[segment].state = State::kAbsent;
  counts_.bytes -= bytes;
}

// -- records that come and go ---------------------------------------------------------------------

bool RowLog::open_segment() {
  const auto found = std::ranges::find(segments_, State::kFree, &Segment::state);
  if (found == segments_.end()) return false;
  open_ = static_cast<uint32_t>(found - segments_.begin());
  found->state = State::kOpen;
  batch_block_ = open_ * segment_blocks_;
  batch_records_ = 0;
  return true;
}

std::optional<uint32_t> RowLog::append(const std::byte* record) {
  if (open_ == kNone && !open_segment()) return std::nullopt;
  if (batch_records_ == batch_blocks_ * block_records_) {
    if (!write_batch()) return std::nullopt;
    if (open_ == kNone && !open_segment()) return std::nullopt;
  }
  const auto place = static_cast<uint32_t>(batch_block_ * block_records_ + batch_records_);
  const uint64_t block = batch_records_ / block_records_;
  std::memcpy(batch_.get() + block * block_bytes_ + record_at(place), record, record_bytes_);
  ++batch_records_;
  ++segments_[open_].live;
  ++counts_.rows;
  ++counts_.written;
  return place;
}

/// Only a batch that is full; seals its segment with the last one.
bool RowLog::write_batch() {
  if (batch_records_ < batch_blocks_ * block_records_) return true;
  for (uint64_t i = 0; i < batch_blocks_; ++i) {
    std::byte* const block = batch_.get() + i * block_bytes_;
    const uint64_t number = batch_block_ + i;
    std::memcpy(block + 8, &number, sizeof number);
    const uint32_t sum = checksum_of(block, block_bytes_);
    std::memcpy(block, &sum, sizeof sum);
  }
  write_failure_ =
      disk_->write(batch_block_ * block_bytes_, {batch_.get(), batch_blocks_ * block_bytes_});
  if (!write_failure_.ok()) return false;
  batch_block_ += batch_blocks_;
  batch_records_ = 0;
  if (batch_block_ % segment_blocks_ != 0) return true;
  const uint32_t full = std::exchange(open_, kNone);
  segments_[full].state = State::kSealed;
  if (segments_[full].live == 0) free_segment(full);
  return true;
}

void RowLog::drop(uint32_t place) {
  const uint32_t index = segment_of(place);
  Segment& segment = segments_[index];
  CORRO_CHECK(segment.live > 0, place);
  --segment.live;
  --counts_.rows;
  if (segment.live == 0 && segment.state == State::kSealed) free_segment(index);
}

// -- reading --------------------------------------------------------------------------------------

Status RowLog::read(std::span<const uint32_t> places, const Visit& visit) {
  std::vector<size_t> order(places.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return places[i]; });
  const size_t most = kReadBytes / block_bytes_;
  const std::span<const size_t> all = order;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    size_t blocks = 0;
    for (; end < order.size(); ++end) {
      const bool same =
          end > begin && block_of(places[order[end]]) == block_of(places[order[end - 1]]);
      if (!same && ++blocks > most) break;
    }
    CORRO_TRY(read_group(places, all.subspan(begin, end - begin), visit));
    begin = end;
  }
  return {};
}

/// Visits a block's records once it is there, while the disk reads others. Blocks that are in memory
/// are copied, too: `visit` may append, and so write them.
Status RowLog::read_group(std::span<const uint32_t> places, std::span<const size_t> order,
                          const Visit& visit) {
  std::vector<Disk::Read> reads;
  std::vector<std::span<const size_t>> wanted;  // Of each read.
  const auto visit_all = [&](const std::byte* block, std::span<const size_t> those) {
    for (const size_t i : those) visit(i, block + record_at(places[i]));
  };
  std::byte* next = blocks_.get();
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end, next += block_bytes_) {
    const uint64_t block = block_of(places[order[begin]]);
    while (end < order.size() && block_of(places[order[end]]) == block) ++end;
    const auto those = order.subspan(begin, end - begin);
    if (in_memory(block)) {
      std::memcpy(next, batch_.get() + (block - batch_block_) * block_bytes_, block_bytes_);
      visit_all(next, those);
    } else {
      reads.push_back({.offset = block * block_bytes_, .into = {next, block_bytes_}});
      wanted.push_back(those);
    }
  }
  counts_.reads += reads.size();
  Status first;
  disk_->read(reads, [&](const Disk::Read& read, const Status& ended) {
    const std::byte* const block = read.into.data();
    Status status = ended.ok() ? check_block(block, read.offset / block_bytes_)
                               : ended.with_context(fmt::format("table {}", table_));
    if (status.ok()) return visit_all(block, wanted[static_cast<size_t>(&read - reads.data())]);
    if (first.ok()) first = std::move(status);
  });
  return first;
}

Status RowLog::check_block(const std::byte* block, uint64_t number) const {
  const bool good = value_at<uint32_t>(block) == checksum_of(block, block_bytes_) &&
                    value_at<uint64_t>(block + 8) == number;
  if (good) return {};
  return {Code::kDataLoss,
          fmt::format("table {}: rows on disk: the block at byte {} is not what was written there: "
                      "the disk is at fault, and rows of this server are lost",
                      table_, number * block_bytes_)};
}

// -- compaction -----------------------------------------------------------------------------------

uint32_t RowLog::choose_victim() const {
  uint32_t best = kNone;
  for (uint32_t i = 0; i < segments_.size(); ++i) {
    const Segment& one = segments_[i];
    if (one.state != State::kSealed || one.unreadable ||
        uint64_t{2} * one.live >= segment_records())
      continue;
    if (best == kNone || one.live < segments_[best].live) best = i;
  }
  return best;
}

void RowLog::compact(size_t blocks, Owner& owner) {
  while (blocks > 0) {
    if (victim_ == kNone) {
      victim_ = choose_victim();
      victim_block_ = victim_ * segment_blocks_;
    }
    if (victim_ == kNone) return;
    const uint64_t left = (victim_ + 1) * segment_blocks_ - victim_block_;
    const size_t count = std::min({blocks, batch_blocks_, left});
    blocks -= count;
    if (!compact_blocks(count, owner)) return;
  }
}

/// Of the victim; false: what lives finds no room, or the write failed.
bool RowLog::compact_blocks(size_t count, Owner& owner) {
  const uint32_t segment = victim_;
  if (!read_blocks(victim_block_, count).ok()) {
    segments_[segment].unreadable = true;
    victim_ = kNone;
    return true;
  }
  for (size_t i = 0; i < count; ++i) {
    if (!compact_block(blocks_.get() + i * block_bytes_, owner)) return false;
    if (victim_ != segment) return true;  // Nothing is left of it.
    ++victim_block_;
  }
  return true;
}

/// What was moved before room ran out is not moved again: it lives elsewhere then.
bool RowLog::compact_block(const std::byte* block, Owner& owner) {
  const uint64_t first = victim_block_ * block_records_;
  for (uint64_t i = 0; i < block_records_; ++i) {
    const auto place = static_cast<uint32_t>(first + i);
    const std::byte* const record = block + record_at(place);
    if (!owner.lives(record, place)) continue;
    const auto to = append(record);
    if (!to) return false;
    owner.moved(record, place, *to);
  }
  return true;
}

Status RowLog::read_blocks(uint64_t first, size_t count) {
  const Disk::Read all{.offset = first * block_bytes_,
                       .into = {blocks_.get(), count * block_bytes_}};
  CORRO_TRY(disk_->read_all({&all, 1}));
  for (size_t i = 0; i < count; ++i)
    CORRO_TRY(check_block(blocks_.get() + i * block_bytes_, first + i));
  return {};
}

}  // namespace corro::table
