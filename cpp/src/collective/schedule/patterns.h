// Index arithmetic of the algorithms: who owns which elements, who talks to whom. Pure.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace corro::collective {

/// `count` elements from `begin` on.
struct Range {
  uint64_t begin = 0;
  uint64_t count = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

/// Cuts `count` elements into `parts` ranges in order; sizes differ by one at most, larger ones
/// first.
[[nodiscard]] constexpr Range slice(uint64_t count, uint64_t parts, uint64_t index) {
  const uint64_t each = count / parts;
  const uint64_t larger = count % parts;
  return {index * each + (index < larger ? index : larger), each + (index < larger ? 1 : 0)};
}

/// Cuts a range, as above.
[[nodiscard]] constexpr Range slice(Range whole, uint64_t parts, uint64_t index) {
  const Range part = slice(whole.count, parts, index);
  return {whole.begin + part.begin, part.count};
}

/// Which part of a vector each member owns when n contributors and k aggregators divide the work so
/// that every port is busy for the same time. Source: the optimal split of BytePS (Jiang et al.,
/// OSDI 2020, section 3.2), as exact fractions over element ranges instead of a hash over keys.
class Shares {
 public:
  Shares(int32_t contributors, int32_t aggregators);

  /// False if the member's share is nothing whatever the count: it then takes no part as an owner.
  [[nodiscard]] bool owns(int32_t member) const;
  [[nodiscard]] Range of(int32_t member, uint64_t count) const;

 private:
  [[nodiscard]] uint64_t weight_before(int32_t member) const;

  int32_t contributors_;
  uint64_t contributor_weight_;
  uint64_t aggregator_weight_;
  uint64_t total_weight_;
};

/// Where the blocks of each rank lie in a buffer that holds all of them in rank order.
class Layout {
 public:
  /// `counts` per rank, or empty: `count` each.
  Layout(std::span<const uint64_t> counts, uint64_t count, int32_t size);

  [[nodiscard]] uint64_t count(int32_t rank) const {
    return even_ ? count_
                 : starts_[static_cast<size_t>(rank) + 1] - starts_[static_cast<size_t>(rank)];
  }
  [[nodiscard]] uint64_t offset(int32_t rank) const {
    return even_ ? count_ * static_cast<uint64_t>(rank) : starts_[static_cast<size_t>(rank)];
  }
  [[nodiscard]] Range block(int32_t rank) const { return {offset(rank), count(rank)}; }
  [[nodiscard]] uint64_t total() const { return offset(size_); }
  [[nodiscard]] uint64_t largest() const { return largest_; }
  /// Elements of the `length` ranks from `first` on, counting on from the last rank to rank 0.
  [[nodiscard]] uint64_t count_of_run(int32_t first, int32_t length) const;

 private:
  bool even_;
  int32_t size_;
  uint64_t count_;
  uint64_t largest_;
  std::vector<uint64_t> starts_;  ///< Uneven: prefix sums, size + 1 of them.
};

/// (value modulo size), never negative; value > -size.
[[nodiscard]] constexpr int32_t wrap(int32_t value, int32_t size) { return (value + size) % size; }

/// Rounds of a tree or a dissemination over `size` ranks: the logarithm, rounded up.
[[nodiscard]] constexpr int32_t log2_ceil(int32_t size) {
  return static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(size - 1)));
}

/// Binomial tree over positions 0 .. size-1 with root 0: the parent of v is v without its lowest
/// set bit, and its subtree is the run of positions that start with v.
[[nodiscard]] constexpr int32_t subtree_level(int32_t position, int32_t size) {
  return position == 0 ? log2_ceil(size) : std::countr_zero(static_cast<uint32_t>(position));
}
[[nodiscard]] constexpr int32_t subtree_size(int32_t position, int32_t size) {
  const int32_t full = int32_t{1} << subtree_level(position, size);
  return full < size - position ? full : size - position;
}

}  // namespace corro::collective
