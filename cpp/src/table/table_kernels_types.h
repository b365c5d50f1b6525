// What the kernels are made of: types of weights, and how they round. Included by
// table_kernels_impl.h only; see there for the rules.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernels_types.h"

namespace corro::table {
namespace {

constexpr float kLargest = 0x1.fffffep+127F;

/// The nearest value of at most `largest`; `largest` for NaN.
inline float clamped(float x, float largest) {
  const float below = x < largest ? x : largest;
  return below > -largest ? below : -largest;
}
inline float finite(float x) { return clamped(x, kLargest); }

/// 32 bits for one element. Source: Wellons, "Prospecting for hash functions" (2018), lowbias32.
inline uint32_t random_bits(uint64_t rounding, uint32_t element) {
  uint32_t x = static_cast<uint32_t>(rounding) + element * 0x9e3779b9U;
  x = (x ^ (x >> 16U)) * 0x7feb352dU;
  x ^= static_cast<uint32_t>(rounding >> 32U);
  x = (x ^ (x >> 15U)) * 0x846ca68bU;
  return x ^ (x >> 16U);
}

// A value between two of bf16 or f16 becomes the upper one as often as it is near to it: random
// bits are added below the last bit that stays, and what is below it is cut off. A value that the
// type has stays, since nothing is carried; what is beyond the largest finite value becomes that.

struct F32 {
  using Element = float;
  static constexpr float kMost = kLargest;
  static float load(float value) { return value; }
  static float nearest(float value) { return value; }
  static float store(float value, uint64_t /*rounding*/, uint32_t /*element*/) { return value; }
};

struct BF16 {
  using Element = uint16_t;
  static constexpr float kMost = 0x1.fep+127F;
  static float load(uint16_t bits) { return device::BF16::load(bits); }
  static uint16_t nearest(float value) { return device::BF16::store(value); }
  static uint16_t store(float value, uint64_t rounding, uint32_t element) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t random = random_bits(rounding, element) & 0xffffU;
    const uint32_t rounded = ((bits & 0x7fffffffU) + random) >> 16U;
    const uint32_t magnitude = rounded < 0x7f7fU ? rounded : 0x7f7fU;
    return static_cast<uint16_t>(magnitude | (bits >> 16U & 0x8000U));
  }
};

struct F16 {
  using Element = uint16_t;
  static constexpr float kMost = 65504;
  static float load(uint16_t bits) { return device::F16::load(bits); }
  static uint16_t nearest(float value) { return device::F16::store(value); }
  static uint16_t store(float value, uint64_t rounding, uint32_t element) {
    constexpr uint32_t kSmallestNormal = 0x38800000;  // 2^-14
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t random = random_bits(rounding, element);
    const uint32_t magnitude = bits & 0x7fffffffU;
    const uint32_t normal = (magnitude - 0x38000000U + (random & 0x1fffU)) >> 13U;
    // Subnormals are multiples of 2^-24: as integers of 2^-45, of which 21 bits are cut off.
    const float small = magnitude < kSmallestNormal ? __builtin_bit_cast(float, magnitude) : 0.0F;
    const auto fixed = static_cast<uint32_t>(static_cast<int32_t>(small * 0x1p45F));
    const uint32_t subnormal = (fixed + (random & 0x1fffffU)) >> 21U;
    const uint32_t rounded = magnitude < kSmallestNormal ? subnormal : normal;
    const uint32_t finite_bits = rounded < 0x7bffU ? rounded : 0x7bffU;
    return static_cast<uint16_t>(finite_bits | (bits >> 16U & 0x8000U));
  }
};

}  // namespace
}  // namespace corro::table
