// Which ranks take part where halving and doubling need a power of two of them. Pure.
#pragma once

#include <bit>
#include <cstdint>

namespace corro {

/// The largest power of two of ranks that halving and doubling run on. Each of the first 2 * extras
/// ranks that is odd hands its vector to its even neighbour before and takes the result from it
/// afterwards. Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication
/// operations in MPICH" (2005), section 4.5.
struct PowerOfTwo {
  int32_t active;
  int32_t extras;

  explicit constexpr PowerOfTwo(int32_t size)
      : active(static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(size)))),
        extras(size - active) {}

  [[nodiscard]] constexpr bool is_extra(int32_t rank) const {
    return rank < 2 * extras && rank % 2 == 1;
  }
  [[nodiscard]] constexpr bool has_extra(int32_t rank) const {
    return rank < 2 * extras && rank % 2 == 0;
  }
  [[nodiscard]] constexpr int32_t id_of(int32_t rank) const {
    return rank < 2 * extras ? rank / 2 : rank - extras;
  }
  [[nodiscard]] constexpr int32_t rank_of(int32_t id) const {
    return id < extras ? 2 * id : id + extras;
  }
};

}  // namespace corro
