#include "table/rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace corro::table {
namespace {

constexpr size_t kSmallestSlab = 4096;

}  // namespace

// The division: for a slot below 2^31 and a divisor d, slot * ceil(2^k / d) >> k is slot / d when
// 2^k >= 2^31 * d, and the product is below 2^64. Source: Granlund, Montgomery, "Division by
// invariant integers using multiplication" (1994), theorem 4.2.
Rows::Rows(size_t row_bytes)
    : row_bytes_(row_bytes),
      slab_rows_(kHugePage / row_bytes),
      slab_shift_(31U + static_cast<unsigned>(std::bit_width(slab_rows_ - 1))) {
  CORRO_CHECK(row_bytes % 4 == 0 && row_bytes <= kHugePage, row_bytes);
  slab_factor_ = ((uint64_t{1} << slab_shift_) + slab_rows_ - 1) / slab_rows_;
}

uint32_t Rows::take() {
  if (free_ == kNone && used_ == capacity_) add_slab();
  ++count_;
  if (free_ == kNone) return used_++;
  const uint32_t slot = free_;
  std::memcpy(&free_, at(slot), sizeof free_);
  return slot;
}

void Rows::give(uint32_t slot) {
  std::memcpy(at(slot), &free_, sizeof free_);
  free_ = slot;
  --count_;
}

size_t Rows::bytes_of_next() const {
  if (free_ != kNone || used_ < capacity_) return 0;
  return slabs_.size() > 1 || capacity_ == slab_rows_ ? kHugePage : first_slab_bytes() - bytes_;
}

/// Of the first slab, once it has grown.
size_t Rows::first_slab_bytes() const {
  const size_t wanted = std::max({kSmallestSlab, row_bytes_, bytes_ * 2});
  return std::min(std::bit_ceil(wanted), kHugePage);
}

void Rows::add_slab() {
  const bool first_grows = slabs_.size() < 2 && capacity_ < slab_rows_;
  if (!first_grows) {
    slabs_.emplace_back(kHugePage);
    bytes_ += kHugePage;
    capacity_ += slab_rows_;
    return;
  }
  if (slabs_.empty()) slabs_.emplace_back();
  resize_first_slab(first_slab_bytes());
}

void Rows::resize_first_slab(size_t bytes) {
  Block other(bytes);
  if (used_ > 0) std::memcpy(other.data(), slabs_[0].data(), used_ * row_bytes_);
  slabs_[0] = std::move(other);
  bytes_ = slabs_[0].size();
  capacity_ = bytes_ / row_bytes_;
}

bool Rows::can_shrink() const {
  return slabs_.size() > 1 || bytes_ / 2 >= std::max(kSmallestSlab, row_bytes_);
}

uint32_t Rows::capacity_when_shrunk() const {
  if (slabs_.size() > 1) return static_cast<uint32_t>((slabs_.size() - 1) * slab_rows_);
  return static_cast<uint32_t>(bytes_ / 2 / row_bytes_);
}

void Rows::shrink() {
  const uint32_t capacity = capacity_when_shrunk();
  // The list of free slots, without those that go.
  uint32_t kept = kNone;
  for (uint32_t slot = free_; slot != kNone;) {
    uint32_t next = 0;
    std::memcpy(&next, at(slot), sizeof next);
    if (slot < capacity) {
      std::memcpy(at(slot), &kept, sizeof kept);
      kept = slot;
    }
    slot = next;
  }
  free_ = kept;
  used_ = std::min(used_, capacity);
  if (slabs_.size() == 1) return resize_first_slab(bytes_ / 2);
  slabs_.pop_back();
  bytes_ -= kHugePage;
  capacity_ = capacity;
}

}  // namespace corro::table
