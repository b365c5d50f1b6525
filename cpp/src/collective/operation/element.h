// Elements that are moved and not computed with: complex numbers, dates, numbers in the other byte
// order. For these dtype is u8 and counts are bytes; a number says what they are.
//
//   const uint16_t number = element_number("complex64");   // 2
//   element_name(number);                                   // "complex64"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace corro::collective {

/// Values of corro_op's `element` by which a signature tells elements apart; 0: dtype says all.
/// Part of the wire format (docs/wire.md).
inline constexpr uint16_t kPlainElement = 0;

/// The number of a dtype's name as numpy and torch have it, with " in the other byte order" behind
/// it where that is so. Names that are not in the table get a hash of 15 bits. Never 0; pure.
[[nodiscard]] uint16_t element_number(std::string_view name);

/// The name that users of Python know: "float32" for f32.
[[nodiscard]] std::string long_name(DType dtype);

/// The name, or "elements #1a2b" for a hash. Foreign numbers are safe.
[[nodiscard]] std::string element_name(uint16_t number);

/// Bytes of an element; 1 where that is not known.
[[nodiscard]] uint64_t element_bytes(uint16_t number);

}  // namespace corro::collective
