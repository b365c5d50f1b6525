#include "table/sketch.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "table/hash.h"

namespace corro::table {

Sketch::Sketch(uint64_t seed, uint32_t least_pushes)
    : seed_(seed_for(Use::kSketch, seed)),
      least_pushes_(least_pushes),
      memory_(size_t{kRows} * kWidth * sizeof(uint16_t)) {}

bool Sketch::admits(uint64_t key) {
  constexpr unsigned kShift = 12;  // The highest 20 of 32 bits say which counter.
  static_assert(kWidth == 1U << (32 - kShift));
  const uint64_t hash = hash_of(seed_, key);
  const auto first = static_cast<uint32_t>(hash);
  const auto step = static_cast<uint32_t>(hash >> 32U) | 1U;
  std::array<uint16_t*, kRows> mine{};
  uint16_t least = UINT16_MAX;
  for (uint32_t row = 0; row < kRows; ++row) {
    mine.at(row) = counters() + size_t{row} * kWidth + ((first + row * step) >> kShift);
    least = std::min(least, *mine.at(row));
  }
  if (least + 1U >= least_pushes_) return true;
  for (uint16_t* const counter : mine) {
    if (*counter == least) ++*counter;
  }
  if (++counted_ == kWidth) halve();
  return false;
}

void Sketch::halve() {
  uint16_t* const all = counters();
  for (size_t i = 0; i < size_t{kRows} * kWidth; ++i) all[i] = static_cast<uint16_t>(all[i] / 2);
  counted_ = 0;
}

}  // namespace corro::table
