// What the kernels are made of: element types, conversions, operators. Included by kernels_impl.h
// and by the kernels of tables; see there for the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace corro::device {
namespace {

// --- Conversions ---

/// Every NaN becomes the one quiet NaN: which of two NaNs an addition keeps depends on the order of
/// its operands, and compilers swap them.
inline float canonical(float x) { return x != x ? __builtin_bit_cast(float, 0x7fc00000U) : x; }
inline double canonical(double x) {
  return x != x ? __builtin_bit_cast(double, uint64_t{0x7ff8} << 48U) : x;
}

// --- Element types: how one is read into an accumulator and written back ---

template <typename T>
struct Float {
  using Element = T;
  using Accumulator = T;
  static constexpr bool kIsFloat = true;
  static T load(T value) { return value; }
  static T store(T value) { return canonical(value); }
};

struct BF16 {
  using Element = uint16_t;
  using Accumulator = float;
  static constexpr bool kIsFloat = true;
  static float load(uint16_t bits) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16U);
  }
  static uint16_t store(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, canonical(value));
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16U & 1U)) >> 16U);
  }
};

struct F16 {
  using Element = uint16_t;
  using Accumulator = float;
  static constexpr bool kIsFloat = true;

  static float load(uint16_t half) {
    const uint32_t magnitude = (half & 0x7fffU) << 13U;
    // Subnormals: put the fraction below the leading one of 2^-14, then subtract that one.
    const uint32_t smallest_normal = 0x38800000;
    const float subnormal = __builtin_bit_cast(float, magnitude + smallest_normal) -
                            __builtin_bit_cast(float, smallest_normal);
    const uint32_t exponent_shift = magnitude >= 0x0f800000 ? 0x70000000 : 0x38000000;
    const uint32_t bits = magnitude < 0x00800000 ? __builtin_bit_cast(uint32_t, subnormal)
                                                 : magnitude + exponent_shift;
    return __builtin_bit_cast(float, bits | (half & 0x8000U) << 16U);
  }

  static uint16_t store(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, canonical(value));
    const uint32_t magnitude = bits & 0x7fffffffU;
    const uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13U & 1U)) >> 13U;
    // Subnormals: 0.5f has a unit in the last place of 2^-24, the unit of subnormal halves, so
    // adding it rounds.
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5F;
    const uint32_t subnormal = __builtin_bit_cast(uint32_t, shifted) - 0x3f000000;
    const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
    const uint32_t large = magnitude > 0x7f800000 ? 0x7e00U : 0x7c00U;
    return static_cast<uint16_t>((magnitude >= 0x477ff000 ? large : finite) |
                                 (bits >> 16U & 0x8000U));
  }
};

template <typename T>
struct Integer {
  using Element = T;
  using Accumulator = T;
  static constexpr bool kIsFloat = false;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};

struct Bool {
  using Element = uint8_t;
  using Accumulator = uint8_t;
  static constexpr bool kIsFloat = false;
  static uint8_t load(uint8_t value) { return value != 0; }
  static uint8_t store(uint8_t value) { return value; }
};

template <typename Type, typename Wanted>
constexpr bool kIs = std::is_same_v<Type, Wanted>;

// --- Operators ---

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
};

struct Product {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

/// A NaN wins; of equal values (also of -0 and 0) the first stays.
struct Min {
  template <typename T>
  static T apply(T a, T b) {
    const T smaller = b < a ? b : a;
    return b != b ? b : smaller;
  }
};

struct Max {
  template <typename T>
  static T apply(T a, T b) {
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
  }
};

}  // namespace
}  // namespace corro::device
