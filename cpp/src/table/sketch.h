// Sketch: how often keys came that have no row, in a fixed number of bytes. Never too few, but for
// halving; too many when other keys share all of a key's counters.
//
// Four rows of counters; a key has one in each, and came as often as the smallest says. Only the
// smallest are counted up, so that keys disturb each other less (Estan, Varghese, "New directions
// in traffic measurement and accounting", 2002). Source of the sketch: Cormode, Muthukrishnan, "An
// improved data stream summary: the count-min sketch" (2005).
//
// A stream of ever new keys would fill it in the end. So all counters are halved once a row's number
// of pushes has been counted: keys that come once in so long stay out for ever.
#pragma once

#include <cstdint>

#include "table/block.h"

namespace corro::table {

/// Externally synchronized.
class Sketch {
 public:
  static constexpr uint32_t kWidth = 1U << 20U;
  static constexpr uint32_t kRows = 4;

  Sketch(uint64_t seed, uint32_t least_pushes);

  /// True with the key's `least_pushes`-th push; counts it, if it is not.
  [[nodiscard]] bool admits(uint64_t key);

 private:
  void halve();
  [[nodiscard]] uint16_t* counters() const { return reinterpret_cast<uint16_t*>(memory_.data()); }

  uint64_t seed_;
  uint32_t least_pushes_;
  uint32_t counted_ = 0;  ///< Pushes since counters were halved.
  Block memory_;
};

}  // namespace corro::table
