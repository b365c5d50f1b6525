// 16-bit floats, eight at a time, where there are instructions for it: compilers do not vectorise
// their conversions. Included by kernels_impl.h only; see there for the rules. Each function
// returns how many elements it has done; the rest go one by one, to the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernels_types.h"

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

namespace corro::device {
namespace {

#if defined(__F16C__) && defined(__AVX2__)

template <typename Type>
constexpr bool kByEight = kIs<Type, F16> || kIs<Type, BF16>;

template <typename Type>
__m256 load_eight(const uint16_t* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if constexpr (kIs<Type, F16>) return _mm256_cvtph_ps(bits);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/// Rounds a canonical value in the upper half of each element to nearest even, and packs the
/// halves.
inline __m128i round_bf16(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i rounded = _mm256_srli_epi32(sum, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}

template <typename Type>
void store_eight(uint16_t* into, __m256 values, __m256 factor) {
  constexpr int kNearestEven = 0;
  values = _mm256_mul_ps(values, factor);
  values = _mm256_blendv_ps(values, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                            _mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  __m128i bits;
  if constexpr (kIs<Type, F16>) {
    bits = _mm256_cvtps_ph(values, kNearestEven);
  } else {
    bits = round_bf16(values);
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(into), bits);
}

template <typename Type, typename Op, typename... More>
size_t fold_pass_by_eight(uint16_t* into, size_t count, float factor, const uint16_t* first,
                          const More*... more) {
  const __m256 factors = _mm256_set1_ps(factor);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256 sum = load_eight<Type>(first + i);
    ((sum = Op::apply(sum, load_eight<Type>(more + i))), ...);
    store_eight<Type>(into + i, sum, factors);
  }
  return i;
}

template <typename Type>
size_t load_row_by_eight(float* row, const uint16_t* source, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(row + i, load_eight<Type>(source + i));
  return i;
}

template <typename Type, typename Op>
size_t fold_into_row_by_eight(float* row, const uint16_t* source, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 sum = Op::apply(_mm256_loadu_ps(row + i), load_eight<Type>(source + i));
    _mm256_storeu_ps(row + i, sum);
  }
  return i;
}

template <typename Type>
size_t store_row_by_eight(uint16_t* into, const float* row, size_t count, float factor) {
  const __m256 factors = _mm256_set1_ps(factor);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) store_eight<Type>(into + i, _mm256_loadu_ps(row + i), factors);
  return i;
}

#else

template <typename Type>
constexpr bool kByEight = false;

template <typename Type, typename Op, typename... More>
size_t fold_pass_by_eight(uint16_t* into, size_t count, float factor, const uint16_t* first,
                          const More*... more);
template <typename Type>
size_t load_row_by_eight(float* row, const uint16_t* source, size_t count);
template <typename Type, typename Op>
size_t fold_into_row_by_eight(float* row, const uint16_t* source, size_t count);
template <typename Type>
size_t store_row_by_eight(uint16_t* into, const float* row, size_t count, float factor);

#endif

}  // namespace
}  // namespace corro::device
