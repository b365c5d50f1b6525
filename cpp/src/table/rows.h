// Rows: memory for rows of one size, by slot.
//
//   const uint32_t slot = rows.take();
//   std::byte* row = rows.at(slot);
//   rows.give(slot);
//
// Rows stand in slabs of a huge page each. The first slab begins as one small piece and doubles, so
// that a small table is small: its rows move when it does. A slot that is given back is the next
// one taken; its memory holds the number of the slot that was given back before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "table/block.h"

namespace corro::table {

/// Externally synchronized.
class Rows {
 public:
  /// `row_bytes` is a multiple of 4, at most a huge page.
  explicit Rows(size_t row_bytes);

  /// A slot with anything in it.
  [[nodiscard]] uint32_t take();
  void give(uint32_t slot);
  /// Until the next take().
  [[nodiscard]] std::byte* at(uint32_t slot) const {
    const uint64_t slab = slot * slab_factor_ >> slab_shift_;
    return slabs_[slab].data() + (slot - slab * slab_rows_) * row_bytes_;
  }
  void prefetch(uint32_t slot) const {
    const std::byte* const row = at(slot);
    const size_t bytes = row_bytes_ < kMostPrefetched ? row_bytes_ : kMostPrefetched;
    for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(row + i);
    __builtin_prefetch(row + bytes - 1);
  }

  [[nodiscard]] uint32_t count() const { return count_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  /// How many bytes the next take() asks the system for.
  [[nodiscard]] size_t bytes_of_next() const;

  /// Slots that were ever taken are below it.
  [[nodiscard]] uint32_t used() const { return used_; }
  /// Gives the last slab back, or half of the first one. Slots from capacity_when_shrunk() on are not
  /// taken.
  [[nodiscard]] bool can_shrink() const;
  [[nodiscard]] uint32_t capacity_when_shrunk() const;
  void shrink();

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kMostPrefetched = 512;  ///< The processor sees by itself what follows.
  static constexpr uint32_t kNone = UINT32_MAX;

  [[nodiscard]] size_t first_slab_bytes() const;
  void add_slab();
  void resize_first_slab(size_t bytes);

  size_t row_bytes_;
  uint64_t slab_rows_;
  uint64_t slab_factor_;  ///< slot / slab_rows_ is slot * slab_factor_ >> slab_shift_.
  unsigned slab_shift_;
  std::vector<Block> slabs_;
  size_t bytes_ = 0;       ///< Of all slabs.
  uint64_t capacity_ = 0;  ///< Slots that there is memory for.
  uint32_t used_ = 0;      ///< Slots that were ever taken: those below it.
  uint32_t count_ = 0;
  uint32_t free_ = kNone;  ///< The slot that was given back last.
};

}  // namespace corro::table
