// Sixteen one-byte tags, compared at once where there is an instruction for it. The only file of
// this floor that depends on the processor, beside the kernels: every x86-64 has SSE2, and others
// compare one by one, which compilers vectorise.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace corro::table {

inline constexpr uint32_t kGroup = 16;  ///< Tags in a group.

/// Bit i is set when `tags[i] == tag`; `tags` is aligned to 16 bytes.
[[nodiscard]] inline uint32_t match(const uint8_t* tags, uint8_t tag) {
#if defined(__SSE2__)
  const __m128i all = _mm_load_si128(reinterpret_cast<const __m128i*>(tags));
  const __m128i equal = _mm_cmpeq_epi8(all, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<uint32_t>(_mm_movemask_epi8(equal));
#else
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kGroup; ++i) bits |= static_cast<uint32_t>(tags[i] == tag) << i;
  return bits;
#endif
}

/// Bit i is set when the highest bit of `tags[i]` is.
[[nodiscard]] inline uint32_t match_high(const uint8_t* tags) {
#if defined(__SSE2__)
  const __m128i all = _mm_load_si128(reinterpret_cast<const __m128i*>(tags));
  return static_cast<uint32_t>(_mm_movemask_epi8(all));
#else
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kGroup; ++i) bits |= static_cast<uint32_t>(tags[i] >> 7U) << i;
  return bits;
#endif
}

/// The lowest bit that is set; `bits` is not 0.
[[nodiscard]] inline uint32_t lowest(uint32_t bits) {
  return static_cast<uint32_t>(std::countr_zero(bits));
}

}  // namespace corro::table
