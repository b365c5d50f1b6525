#include "table/block.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace corro::table {
namespace {

constexpr size_t kLine = 64;
/// From here on memory comes as pages of its own, which go back to the system when they are freed.
constexpr size_t kOwnPages = size_t{64} << 10U;

std::byte* map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

/// Maps a huge page more than asked, and unmaps what is before and behind the aligned part.
std::byte* map_aligned(size_t bytes) {
  std::byte* const all = map(bytes + kHugePage);
  const size_t before = -reinterpret_cast<uintptr_t>(all) % kHugePage;
  const size_t behind = kHugePage - before;
  if (before > 0) (void)munmap(all, before);
  if (behind > 0) (void)munmap(all + before + bytes, behind);
  (void)madvise(all + before, bytes, MADV_HUGEPAGE);  // Faster; without it all works, too.
  return all + before;
}

}  // namespace

size_t Block::size_of(size_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t unit = bytes < kOwnPages ? kLine : kPage;
  return (bytes + unit - 1) / unit * unit;
}

Block::Block(size_t bytes) : size_(size_of(bytes)) {
  if (size_ == 0) return;
  if (size_ < kOwnPages) {
    data_ = static_cast<std::byte*>(::operator new(size_, std::align_val_t{kLine}));
    std::memset(data_, 0, size_);
  } else {
    data_ = size_ < kHugePage ? map(size_) : map_aligned(size_);
  }
}

Block::~Block() { release(); }

Block::Block(Block&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Block& Block::operator=(Block&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void Block::release() {
  if (data_ == nullptr) return;
  if (size_ < kOwnPages) {
    ::operator delete(data_, std::align_val_t{kLine});
  } else {
    (void)munmap(data_, size_);
  }
}

}  // namespace corro::table
