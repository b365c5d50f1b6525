#include "table/changed_keys.h"

#include <algorithm>
#include <bit>

#include "table/hash.h"

namespace corro::table {
namespace {

constexpr uint64_t kBitsOfRow = 8;
constexpr unsigned kLeastBits = 16;
constexpr unsigned kMostBits = 34;  ///< 2 GiB, of 2^31 rows.

uint64_t hash_of_key(uint64_t key) { return hash_of(seed_for(Use::kChanged, 0), key); }

}  // namespace

ChangedKeys ChangedKeys::for_rows(uint64_t rows) {
  const auto wanted = static_cast<unsigned>(std::bit_width(rows * kBitsOfRow));
  return ChangedKeys(std::clamp(wanted, kLeastBits, kMostBits));
}

void ChangedKeys::add(std::span<const uint64_t> keys) {
  for (const uint64_t key : keys) set(hash_of_key(key) >> (64U - bits_));
}

void ChangedKeys::add(const ChangedKeys& other) {
  for (size_t word = 0; word < other.words_.size(); ++word) {
    for (uint64_t left = other.words_[word]; left != 0; left &= left - 1) {
      const uint64_t part = word * 64 + static_cast<uint64_t>(std::countr_zero(left));
      if (other.bits_ >= bits_) {
        set(part >> (other.bits_ - bits_));
        continue;
      }
      const unsigned finer = bits_ - other.bits_;
      for (uint64_t i = 0; i < uint64_t{1} << finer; ++i) set((part << finer) + i);
    }
  }
}

bool ChangedKeys::contains(uint64_t key) const {
  const uint64_t part = hash_of_key(key) >> (64U - bits_);
  return (words_[part / 64] >> (part % 64) & 1U) != 0;
}

}  // namespace corro::table
