// The heap is the owner's alone: maps of its free, used and private ranges, in whole pages.
// allocate() takes the first free range that is large enough. free() returns the pages to the
// system, so they are zero when they are used again, and joins the range with its free neighbours.
// A range with private pages never becomes free again.
//
// A peer has no heap. It follows places that the owner has written into the table, sections and
// lines. at() refuses a place that is not in the heap, and maps more of the segment where a range
// ends behind the first window.
#include "collective/board/segment.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>

#include <fmt/format.h>

namespace corro::collective {
namespace {

constexpr size_t kPage = 4096;

constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

constexpr size_t kTableStart = kPage;
constexpr size_t kHeapStart = kTableStart + sizeof(SectionTable);
static_assert(sizeof(SegmentHeader) <= kTableStart && kHeapStart == 8192);

/// A chain of tables that is longer is none that a peer has made: that many sections have no room.
constexpr int kMostTables = 1 << 16;

template <typename T>
T* as(std::byte* memory) {
  return std::launder(reinterpret_cast<T*>(memory));
}

}  // namespace

Edges edges_of(uint64_t offset, uint64_t bytes) {
  const uint64_t first = round_up(offset, kPage);
  const uint64_t last = (offset + bytes) / kPage * kPage;
  if (first >= last) return {.head = bytes, .tail = bytes};
  return {.head = first - offset, .tail = last - offset};
}

bool Segment::Heap::touches_apart(uint64_t offset, uint64_t size) const {
  const auto next = apart.lower_bound(offset + size);
  return next != apart.begin() && std::prev(next)->first + std::prev(next)->second > offset;
}

template <typename Visit>
Status Segment::Heap::for_each_shared(const Visit& visit) const {
  for (auto block = used.begin(); block != used.end();) {
    uint64_t from = block->first;
    uint64_t end = from;
    for (; block != used.end() && block->first == end; ++block) end += block->second;
    for (auto own = apart.lower_bound(from); own != apart.end() && own->first < end; ++own) {
      if (own->first > from) CORRO_TRY(visit(from, own->first - from));
      from = own->first + own->second;
    }
    if (end > from) CORRO_TRY(visit(from, end - from));
  }
  return {};
}

Segment::Segment(io::Fd fd, io::Mapping mapping, size_t bytes)
    : fd_(std::move(fd)), mapping_(std::move(mapping)), bytes_(bytes) {}

Result<std::unique_ptr<Segment>> Segment::create(size_t heap_bytes, obs::Metrics metrics) {
  const size_t bytes = kHeapStart + round_up(heap_bytes, kPage);
  CORRO_ASSIGN(io::Fd fd, io::create_memfd("corro-segment", bytes));
  CORRO_TRY(io::commit(fd.get(), 0, kHeapStart));
  CORRO_ASSIGN(io::Mapping mapping, io::map_shared(fd.get(), bytes));
  auto segment = std::unique_ptr<Segment>(new Segment(std::move(fd), std::move(mapping), bytes));
  segment->metrics_ = std::move(metrics);
  auto* header = new (segment->mapping_.data()) SegmentHeader{};
  header->magic = kSegmentMagic;
  header->bytes = bytes;
  header->sleeping.store(kIdle, std::memory_order_release);
  segment->last_table_ = new (segment->mapping_.data() + kTableStart) SectionTable{};
  for (SectionEntry& entry : segment->last_table_->entries)
    segment->free_entries_.push_back(&entry);
  segment->heap_.lock()->free.emplace(kHeapStart, bytes - kHeapStart);
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::attach(io::Fd fd) {
  const auto size = io::sealed_size(fd.get());
  if (!size.ok()) return size.status().with_context("a peer's segment");
  const size_t bytes = *size;
  if (bytes < kHeapStart) {
    return Status(
        Code::kDataLoss,
        fmt::format("a peer's segment has {} bytes, at least {} expected", bytes, kHeapStart));
  }
  CORRO_ASSIGN(io::Mapping window, io::map_shared(fd.get(), std::min(bytes, kWindowBytes)));
  auto segment = std::unique_ptr<Segment>(new Segment(std::move(fd), std::move(window), bytes));
  const SegmentHeader& header = segment->header();
  if (header.magic != kSegmentMagic || header.bytes != bytes) {
    return Status(Code::kDataLoss,
                  "a peer's segment has a wrong header: do all ranks run the same corro?");
  }
  return segment;
}

SegmentHeader& Segment::header() const {
  return *std::launder(reinterpret_cast<SegmentHeader*>(mapping_.data()));
}

SectionTable* Segment::first_table() const {
  return as<SectionTable>(mapping_.data() + kTableStart);
}

Result<SectionEntry*> Segment::take_entry() {
  if (free_entries_.empty()) {
    CORRO_ASSIGN(std::byte * memory, allocate(sizeof(SectionTable)));
    auto* table = new (memory) SectionTable{};
    for (SectionEntry& entry : table->entries) free_entries_.push_back(&entry);
    const auto place = static_cast<uint64_t>(memory - mapping_.data());
    last_table_->next.store(place, std::memory_order_release);
    last_table_ = table;
  }
  SectionEntry* entry = free_entries_.back();
  free_entries_.pop_back();
  return entry;
}

std::string members_of(const GroupSection& section) {
  std::string text;
  for (const char& place : section.members) {
    const char c = read_once(place);
    if (c == 0) break;
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return text;
}

Result<SectionView> Segment::open_section(const LaneKey& key, std::string_view members) {
  CORRO_ASSIGN(std::byte * memory, allocate(sizeof(GroupSection)));
  auto entry = take_entry();
  if (!entry.ok()) {
    free(memory);
    return entry.status();
  }
  const auto place = static_cast<uint64_t>(memory - mapping_.data());
  auto* section = as<GroupSection>(memory);
  members.copy(section->members, kMostMembersText - 1);
  (*entry)->epoch.store(key.epoch, std::memory_order_relaxed);
  (*entry)->lane.store(key.key, std::memory_order_relaxed);
  (*entry)->place.store(place, std::memory_order_seq_cst);
  return SectionView{.entry = *entry, .place = place, .section = section};
}

void Segment::hide_section(const SectionView& view) {
  const_cast<SectionEntry*>(view.entry)->place.store(0, std::memory_order_seq_cst);
}

void Segment::free_section(const SectionView& view) {
  free(mapping_.data() + view.place);
  free_entries_.push_back(const_cast<SectionEntry*>(view.entry));
}

Result<std::optional<SectionView>> Segment::find_section(const LaneKey& key) const {
  const SectionTable* table = first_table();
  for (int i = 0; i < kMostTables && table != nullptr; ++i) {
    for (const SectionEntry& entry : table->entries) {
      const uint64_t place = entry.place.load(std::memory_order_seq_cst);
      if (place == 0 || entry.lane.load(std::memory_order_acquire) != key.key ||
          entry.epoch.load(std::memory_order_acquire) != key.epoch ||
          entry.place.load(std::memory_order_seq_cst) != place) {
        continue;
      }
      CORRO_ASSIGN(std::byte * memory, page_at(place, sizeof(GroupSection)));
      if (memory == nullptr) continue;
      return std::optional(
          SectionView{.entry = &entry, .place = place, .section = as<GroupSection>(memory)});
    }
    const uint64_t next = table->next.load(std::memory_order_acquire);
    CORRO_ASSIGN(std::byte * memory, page_at(next, sizeof(SectionTable)));
    table = memory == nullptr ? nullptr : as<SectionTable>(memory);
  }
  return std::optional<SectionView>();
}

Result<Stages*> Segment::stages_of(const GroupSection& section) const {
  const uint64_t place = section.stages.load(std::memory_order_acquire);
  CORRO_ASSIGN(std::byte * memory, page_at(place, sizeof(Stages)));
  return memory == nullptr ? nullptr : as<Stages>(memory);
}

Result<std::byte*> Segment::allocate(size_t size) {
  const uint64_t wanted = round_up(std::max<size_t>(size, 1), kPage);
  uint64_t offset = 0;
  {
    auto heap = heap_.lock();
    const auto fits = [wanted](const auto& range) { return range.second >= wanted; };
    const auto found = std::find_if(heap->free.begin(), heap->free.end(), fits);
    if (found == heap->free.end()) {
      return Status(Code::kResourceExhausted,
                    fmt::format("the arena has no room for {} MiB more", wanted >> 20U));
    }
    offset = found->first;
    const uint64_t rest = found->second - wanted;
    heap->free.erase(found);
    if (rest > 0) heap->free.emplace(offset + wanted, rest);
    heap->used.emplace(offset, wanted);
    metrics_.add(obs::Metric::kArenaBytes, wanted);
  }
  if (Status committed = io::commit(fd_.get(), offset, wanted); !committed.ok()) {
    free(mapping_.data() + offset);
    return committed.with_context("arena");
  }
  return mapping_.data() + offset;
}

void Segment::free(std::byte* memory) {
  if (memory == nullptr) return;
  const auto offset = static_cast<uint64_t>(memory - mapping_.data());
  auto heap = heap_.lock();
  const auto found = heap->used.find(offset);
  CORRO_CHECK(found != heap->used.end(), "arena memory freed twice, or not from this arena");
  const uint64_t size = found->second;
  heap->used.erase(found);
  metrics_.subtract(obs::Metric::kArenaBytes, size);
  if (heap->touches_apart(offset, size)) {
    (void)madvise(memory, size, MADV_DONTNEED);
    (void)io::release_pages(fd_.get(), offset, size);
    return;
  }
  // Giving the pages back also zeroes them for the next allocation; it cannot fail on a committed
  // range.
  (void)io::release_pages(fd_.get(), offset, size);
  auto place = heap->free.emplace(offset, size).first;
  if (const auto next = std::next(place);
      next != heap->free.end() && offset + size == next->first) {
    place->second += next->second;
    heap->free.erase(next);
  }
  if (place != heap->free.begin()) {
    const auto before = std::prev(place);
    if (before->first + before->second == offset) {
      before->second += place->second;
      heap->free.erase(place);
    }
  }
}

Status Segment::set_apart(std::byte* memory, size_t size) {
  const auto start = static_cast<uint64_t>(memory - mapping_.data());
  const auto [head, tail] = edges_of(start, size);
  if (head >= tail) return {};
  auto heap = heap_.lock();
  if (heap->touches_apart(start + head, tail - head)) return {};
  heap->apart.emplace(start + head, tail - head);
  any_apart_.store(true, std::memory_order_release);
  CORRO_TRY(io::make_private(memory + head, tail - head));
  // What late peers store needs pages again, but no more than these.
  return io::release_pages(fd_.get(), start + head, tail - head);
}

// The lock is taken here and let go of in another function: nothing that can be analysed.
void Segment::before_fork() CORRO_NO_THREAD_ANALYSIS {
  // emplace() converts this to the handle, in place: a handle cannot be moved.
  struct Lock {
    Guarded<Heap>& heap;
    operator Guarded<Heap>::Held() const CORRO_NO_THREAD_ANALYSIS { return heap.lock(); }
  };
  held_for_fork_.emplace(Lock{heap_});
}

void Segment::after_fork_in_parent() { held_for_fork_.reset(); }

void Segment::after_fork_in_child() {
  const Status own = (*held_for_fork_)->for_each_shared([this](uint64_t offset, uint64_t size) {
    return io::make_copy_on_write(fd_.get(), offset, mapping_.data() + offset, size);
  });
  if (!own.ok()) (void)mprotect(mapping_.data(), mapping_.size(), PROT_READ);
  held_for_fork_.reset();
}

std::optional<uint64_t> Segment::offset_of(const std::byte* memory, size_t size) const {
  const auto base = reinterpret_cast<uintptr_t>(mapping_.data());
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (address < base + kHeapStart || address - base > bytes() ||
      size > bytes() - (address - base)) {
    return std::nullopt;
  }
  if (any_apart_.load(std::memory_order_acquire)) {
    if (heap_.lock()->touches_apart(address - base, size)) return std::nullopt;
  }
  return address - base;
}

Result<std::byte*> Segment::at(uint64_t offset, size_t size) const {
  if (offset < kHeapStart || offset > bytes_ || size > bytes_ - offset) return nullptr;
  const uint64_t end = offset + size;
  if (end <= mapping_.size()) return mapping_.data() + offset;
  const auto doublings = static_cast<size_t>(std::bit_width((end - 1) / kWindowBytes));
  std::byte* start = view_starts_[doublings].load(std::memory_order_acquire);
  if (start == nullptr) {
    CORRO_ASSIGN(start, map_view(doublings));
  }
  return start + offset;
}

Result<std::byte*> Segment::page_at(uint64_t place, size_t size) const {
  if (place % kPage != 0) return nullptr;
  return at(place, size);
}

Result<std::byte*> Segment::map_view(size_t doublings) const {
  auto views = views_.lock();
  std::atomic<std::byte*>& start = view_starts_[doublings];
  if (start.load(std::memory_order_relaxed) == nullptr) {
    const size_t bytes = std::min(bytes_, kWindowBytes << doublings);
    CORRO_ASSIGN(io::Mapping view, io::map_shared(fd_.get(), bytes));
    views->push_back(std::move(view));
    start.store(views->back().data(), std::memory_order_release);
  }
  return start.load(std::memory_order_relaxed);
}

}  // namespace corro::collective
