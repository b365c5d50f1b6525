// Numbers that look random and are functions of what they are for: which place of the index a key
// has, the initial values of its row, and how bf16 and f16 round. Pure, and the same everywhere.
#pragma once

#include <cstdint>

namespace corro::table {

/// Spreads every bit over all bits; a bijection. Source: Stafford, "Better bit mixing" (2011),
/// variant 13 of MurmurHash3's finalizer.
[[nodiscard]] constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// What a seed is used for. Uses must not share numbers: a server's keys may have been picked by a
/// hash of their own, and the places in its index have to be spread all the same.
enum class Use : uint64_t {
  kIndex = 0x243f6a8885a308d3,
  kInitial = 0x13198a2e03707344,
  kRounding = 0xa4093822299f31d0,
  kSketch = 0x082efa98ec4e6c89,
  kChanged = 0x452821e638d01377,
};

/// A table's seed for one use of it.
[[nodiscard]] constexpr uint64_t seed_for(Use use, uint64_t table_seed) {
  return mix64(table_seed ^ static_cast<uint64_t>(use));
}

/// A key's number for the use that `seed` is for.
[[nodiscard]] constexpr uint64_t hash_of(uint64_t seed, uint64_t key) { return mix64(key ^ seed); }

/// The `place`-th number of a sequence. Source: Steele, Lea, Flood, "Fast splittable pseudorandom
/// number generators" (2014).
[[nodiscard]] constexpr uint64_t number_at(uint64_t sequence, uint64_t place) {
  return mix64(sequence + (place + 1) * 0x9e3779b97f4a7c15U);
}

}  // namespace corro::table
