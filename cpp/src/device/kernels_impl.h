// The kernels, compiled once per instruction set (kernels_baseline.cc, kernels_avx2.cc,
// kernels_avx512.cc).
//
// Everything is in an unnamed namespace and nothing inline from the standard library is called, so
// that no function compiled for a newer processor can be picked by the linker for an older one.
// Loops are plain; the compiler vectorises them. Each element is computed by the same IEEE
// operations whatever the vector width, so the bits agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernels.h"
#include "device/kernels_by_eight.h"
#include "device/kernels_types.h"

// The loops below read and write each index once: vectorising is safe when the target is one of the
// sources.
#if defined(__clang__)
#define CORRO_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define CORRO_VECTORIZE _Pragma("GCC ivdep")
#endif

namespace corro::device {
namespace {

constexpr size_t kRow = 512;  ///< Elements of an accumulator row; stays in the first-level cache.

// --- Scaling ---

/// Truncates toward zero and saturates; a NaN gives 0.
template <typename T>
T integer_of(double value, T lowest, T highest) {
  const double low = static_cast<double>(lowest);
  // highest + 1, exact also for 64 bits. NOLINTNEXTLINE(bugprone-integer-division)
  const double above = static_cast<double>(highest / 2 + 1) * 2;
  if (value != value) return 0;
  if (value <= low) return lowest;
  if (value >= above) return highest;
  return static_cast<T>(value);
}

template <typename Type, typename Accumulator>
Accumulator scaled(Accumulator value, Scale scale) {
  if constexpr (Type::kIsFloat) {
    return value * static_cast<Accumulator>(scale.factor);
  } else if constexpr (kIs<Type, Bool>) {
    return value != 0 && scale.factor != 0;
  } else {
    using T = Accumulator;
    constexpr bool kSigned = static_cast<T>(-1) < T{0};
    constexpr unsigned kValueBits = sizeof(T) * 8 - (kSigned ? 1 : 0);
    constexpr T kHighest = static_cast<T>(~uint64_t{0} >> (64 - kValueBits));
    constexpr T kLowest = kSigned ? static_cast<T>(-kHighest - 1) : T{0};
    if constexpr (sizeof(T) == 8) {
      if (scale.divisor != 0) return value / static_cast<T>(scale.divisor);
    } else if (scale.divisor != 0) {
      // Exact: no quotient of a value of 32 bits and a divisor rounds up to the next integer.
      return static_cast<T>(static_cast<double>(value) / static_cast<double>(scale.divisor));
    }
    return integer_of<T>(static_cast<double>(value) * scale.factor, kLowest, kHighest);
  }
}

// --- Folding ---

/// One pass over a fixed number of sources, for the types that convert by element and need no
/// integer scaling.
template <typename Type, typename Op, typename... More>
void fold_pass(typename Type::Element* into, size_t count, Scale scale,
               const typename Type::Element* first, const More*... more) {
  using Accumulator = typename Type::Accumulator;
  [[maybe_unused]] const auto factor = static_cast<Accumulator>(Type::kIsFloat ? scale.factor : 1);
  size_t i = 0;
  if constexpr (kByEight<Type>) {
    i = fold_pass_by_eight<Type, Op>(into, count, factor, first, more...);
  }
  CORRO_VECTORIZE
  for (; i < count; ++i) {
    Accumulator sum = Type::load(first[i]);
    ((sum = Op::apply(sum, Type::load(more[i]))), ...);
    if constexpr (Type::kIsFloat) sum *= factor;
    into[i] = Type::store(sum);
  }
}

/// row = source.
template <typename Type>
void load_row(typename Type::Accumulator* row, const typename Type::Element* source, size_t count) {
  size_t i = 0;
  if constexpr (kByEight<Type>) i = load_row_by_eight<Type>(row, source, count);
  CORRO_VECTORIZE
  for (; i < count; ++i) row[i] = Type::load(source[i]);
}

/// row = row op source.
template <typename Type, typename Op>
void fold_into_row(typename Type::Accumulator* row, const typename Type::Element* source,
                   size_t count) {
  size_t i = 0;
  if constexpr (kByEight<Type>) i = fold_into_row_by_eight<Type, Op>(row, source, count);
  CORRO_VECTORIZE
  for (; i < count; ++i) row[i] = Op::apply(row[i], Type::load(source[i]));
}

/// into = row, scaled and rounded.
template <typename Type>
void store_row(typename Type::Element* into, const typename Type::Accumulator* row, size_t count,
               Scale scale) {
  size_t i = 0;
  if constexpr (kByEight<Type>) {
    i = store_row_by_eight<Type>(into, row, count, static_cast<float>(scale.factor));
  }
  if (!Type::kIsFloat && scale.factor == 1) {
    CORRO_VECTORIZE
    for (; i < count; ++i) into[i] = Type::store(row[i]);
  } else {
    CORRO_VECTORIZE
    for (; i < count; ++i) into[i] = Type::store(scaled<Type>(row[i], scale));
  }
}

/// Any number of sources, row by row: f16 and bf16 are rounded once, after the last source.
template <typename Type, typename Op>
void fold_rows(typename Type::Element* into, const std::byte* const* sources, size_t sources_count,
               size_t count, Scale scale) {
  alignas(64) typename Type::Accumulator row[kRow];
  for (size_t begin = 0; begin < count; begin += kRow) {
    const size_t length = count - begin < kRow ? count - begin : kRow;
    for (size_t s = 0; s < sources_count; ++s) {
      const auto* source = reinterpret_cast<const typename Type::Element*>(sources[s]);
      if (s == 0) {
        load_row<Type>(row, source + begin, length);
      } else {
        fold_into_row<Type, Op>(row, source + begin, length);
      }
    }
    store_row<Type>(into + begin, row, length, scale);
  }
}

template <typename Type, typename Op>
void fold_kernel(std::byte* into_bytes, const std::byte* const* sources, size_t sources_count,
                 size_t count, Scale scale) {
  using Element = typename Type::Element;
  auto* into = reinterpret_cast<Element*>(into_bytes);
  const auto at = [sources](size_t s) { return reinterpret_cast<const Element*>(sources[s]); };
  const bool one_pass = Type::kIsFloat || scale.factor == 1;
  if (one_pass && sources_count == 2) {
    return fold_pass<Type, Op>(into, count, scale, at(0), at(1));
  }
  if (one_pass && sources_count == 3) {
    return fold_pass<Type, Op>(into, count, scale, at(0), at(1), at(2));
  }
  if (one_pass && sources_count == 4) {
    return fold_pass<Type, Op>(into, count, scale, at(0), at(1), at(2), at(3));
  }
  if (one_pass && sources_count == 8) {
    return fold_pass<Type, Op>(into, count, scale, at(0), at(1), at(2), at(3), at(4), at(5), at(6),
                               at(7));
  }
  fold_rows<Type, Op>(into, sources, sources_count, count, scale);
}

// --- Casting ---

/// Rounds to f32 so that rounding again, to a narrower type, gives what one rounding would: the
/// last bit is set when anything was lost (round to odd; Boldo and Melquiond, "Emulation of a FMA
/// and correctly rounded sums", 2008).
inline float narrow_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  const uint32_t bits = __builtin_bit_cast(uint32_t, nearest);
  const bool away = (value < 0 ? back < value : back > value);
  const uint32_t odd = (away ? bits - 1 : bits) | 1U;
  return back == value || value != value ? nearest : __builtin_bit_cast(float, odd);
}

template <typename Type>
void load_float_row(const typename Type::Element* from, float* row, size_t count) {
  if constexpr (kIs<Type, Float<double>>) {
    CORRO_VECTORIZE
    for (size_t i = 0; i < count; ++i) row[i] = narrow_to_odd(from[i]);
  } else {
    load_row<Type>(row, from, count);
  }
}

template <typename Type>
void store_float_row(typename Type::Element* into, const float* row, size_t count) {
  if constexpr (kIs<Type, Float<double>>) {
    CORRO_VECTORIZE
    for (size_t i = 0; i < count; ++i) into[i] = canonical(static_cast<double>(row[i]));
  } else {
    store_row<Type>(into, row, count, Scale{});
  }
}

template <typename From, typename Into>
void cast_kernel(const std::byte* from_bytes, std::byte* into_bytes, size_t count) {
  const auto* from = reinterpret_cast<const typename From::Element*>(from_bytes);
  auto* into = reinterpret_cast<typename Into::Element*>(into_bytes);
  if constexpr (kIs<From, Float<double>> && kIs<Into, Float<float>>) {
    for (size_t i = 0; i < count; ++i) into[i] = canonical(static_cast<float>(from[i]));
  } else {
    alignas(64) float row[kRow];
    for (size_t begin = 0; begin < count; begin += kRow) {
      const size_t length = count - begin < kRow ? count - begin : kRow;
      load_float_row<From>(from + begin, row, length);
      store_float_row<Into>(into + begin, row, length);
    }
  }
}

// --- Adasum: dot products, and the sum of two scaled vectors ---

constexpr size_t kDotLanes = 8;  ///< Accumulators of each product: one vector of the widest set.

/// Element i goes to lane i % kDotLanes whatever the vector width; `begin` is a multiple of that.
struct DotSums {
  double a_a[kDotLanes] = {}, a_b[kDotLanes] = {}, b_b[kDotLanes] = {};

  template <typename T>
  void add(const T* a, const T* b, size_t count) {
    size_t i = 0;
    for (; i + kDotLanes <= count; i += kDotLanes) add_lanes(a + i, b + i, kDotLanes);
    add_lanes(a + i, b + i, count - i);
  }
  template <typename T>
  void add_lanes(const T* a, const T* b, size_t count) {
    CORRO_VECTORIZE
    for (size_t lane = 0; lane < count; ++lane) {
      const auto x = static_cast<double>(a[lane]);
      const auto y = static_cast<double>(b[lane]);
      a_a[lane] += x * x;
      a_b[lane] += x * y;
      b_b[lane] += y * y;
    }
  }
  [[nodiscard]] Dots total() const {
    Dots dots;
    for (size_t lane = 0; lane < kDotLanes; ++lane) {
      dots.a_a += a_a[lane];
      dots.a_b += a_b[lane];
      dots.b_b += b_b[lane];
    }
    return dots;
  }
};

template <typename Type>
Dots dots_kernel(const std::byte* a_bytes, const std::byte* b_bytes, size_t count) {
  using Element = typename Type::Element;
  const auto* a = reinterpret_cast<const Element*>(a_bytes);
  const auto* b = reinterpret_cast<const Element*>(b_bytes);
  DotSums sums;
  if constexpr (kIs<Element, typename Type::Accumulator>) {
    sums.add(a, b, count);
  } else {
    alignas(64) typename Type::Accumulator row_a[kRow], row_b[kRow];
    for (size_t begin = 0; begin < count; begin += kRow) {
      const size_t length = count - begin < kRow ? count - begin : kRow;
      load_row<Type>(row_a, a + begin, length);
      load_row<Type>(row_b, b + begin, length);
      sums.add(row_a, row_b, length);
    }
  }
  return sums.total();
}

template <typename Type>
void combine_kernel(std::byte* into_bytes, const std::byte* a_bytes, double of_a,
                    const std::byte* b_bytes, double of_b, size_t count) {
  using Element = typename Type::Element;
  auto* into = reinterpret_cast<Element*>(into_bytes);
  const auto* a = reinterpret_cast<const Element*>(a_bytes);
  const auto* b = reinterpret_cast<const Element*>(b_bytes);
  if constexpr (kIs<Element, typename Type::Accumulator>) {
    CORRO_VECTORIZE
    for (size_t i = 0; i < count; ++i) {
      const double sum = static_cast<double>(a[i]) * of_a + static_cast<double>(b[i]) * of_b;
      into[i] = Type::store(static_cast<Element>(sum));
    }
  } else {
    alignas(64) float row_a[kRow], row_b[kRow];
    for (size_t begin = 0; begin < count; begin += kRow) {
      const size_t length = count - begin < kRow ? count - begin : kRow;
      load_row<Type>(row_a, a + begin, length);
      load_row<Type>(row_b, b + begin, length);
      CORRO_VECTORIZE
      for (size_t i = 0; i < length; ++i) {
        row_a[i] = static_cast<float>(static_cast<double>(row_a[i]) * of_a +
                                      static_cast<double>(row_b[i]) * of_b);
      }
      store_row<Type>(into + begin, row_a, length, Scale{});
    }
  }
}

// --- The table ---

template <typename Type>
constexpr void add_folds(Kernels& kernels, DType dtype) {
  FoldFunction* fold = kernels.fold[static_cast<int>(dtype)];
  constexpr bool kBool = kIs<Type, Bool>;  // values are 0 and 1: the sum is the maximum
  FoldFunction sum = kBool ? fold_kernel<Type, Max> : fold_kernel<Type, Sum>;
  fold[static_cast<int>(ReduceOp::kSum)] = sum;
  fold[static_cast<int>(ReduceOp::kAverage)] = sum;
  fold[static_cast<int>(ReduceOp::kMin)] = fold_kernel<Type, Min>;
  fold[static_cast<int>(ReduceOp::kMax)] = fold_kernel<Type, Max>;
  fold[static_cast<int>(ReduceOp::kProduct)] = fold_kernel<Type, Product>;
}

template <typename Type>
constexpr void add_adasum(Kernels& kernels, DType dtype) {
  kernels.dots[static_cast<int>(dtype)] = dots_kernel<Type>;
  kernels.combine[static_cast<int>(dtype)] = combine_kernel<Type>;
}

template <typename From>
constexpr void add_casts(Kernels& kernels, DType from) {
  CastFunction* cast = kernels.cast[static_cast<int>(from)];
  cast[static_cast<int>(DType::kF16)] = cast_kernel<From, F16>;
  cast[static_cast<int>(DType::kBF16)] = cast_kernel<From, BF16>;
  cast[static_cast<int>(DType::kF32)] = cast_kernel<From, Float<float>>;
  cast[static_cast<int>(DType::kF64)] = cast_kernel<From, Float<double>>;
}

constexpr Kernels make_kernels(const char* name) {
  Kernels kernels;
  kernels.name = name;
  add_folds<Bool>(kernels, DType::kBool);
  add_folds<Integer<uint8_t>>(kernels, DType::kU8);
  add_folds<Integer<int8_t>>(kernels, DType::kI8);
  add_folds<Integer<int16_t>>(kernels, DType::kI16);
  add_folds<Integer<int32_t>>(kernels, DType::kI32);
  add_folds<Integer<int64_t>>(kernels, DType::kI64);
  add_folds<Integer<uint16_t>>(kernels, DType::kU16);
  add_folds<Integer<uint32_t>>(kernels, DType::kU32);
  add_folds<Integer<uint64_t>>(kernels, DType::kU64);
  add_folds<F16>(kernels, DType::kF16);
  add_folds<BF16>(kernels, DType::kBF16);
  add_folds<Float<float>>(kernels, DType::kF32);
  add_folds<Float<double>>(kernels, DType::kF64);
  add_adasum<F16>(kernels, DType::kF16);
  add_adasum<BF16>(kernels, DType::kBF16);
  add_adasum<Float<float>>(kernels, DType::kF32);
  add_adasum<Float<double>>(kernels, DType::kF64);
  add_casts<F16>(kernels, DType::kF16);
  add_casts<BF16>(kernels, DType::kBF16);
  add_casts<Float<float>>(kernels, DType::kF32);
  add_casts<Float<double>>(kernels, DType::kF64);
  return kernels;
}

}  // namespace
}  // namespace corro::device
