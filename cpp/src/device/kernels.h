// The dispatch table of the kernels: one per instruction set, all made from kernels_impl.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace corro::device {

/// What a result is multiplied with. Integers divide when the factor is the reciprocal of an
/// integer: 49 * (1.0 / 49) is less than 1, and an average of equal values has to be that value.
struct Scale {
  double factor = 1;
  int64_t divisor = 0;  ///< n when factor == 1.0 / n for an integer n >= 2, else 0.
};

using FoldFunction = void (*)(std::byte* into, const std::byte* const* sources,
                              size_t sources_count, size_t count, Scale scale);
using CastFunction = void (*)(const std::byte* from, std::byte* into, size_t count);

/// Dot products of two vectors with themselves and each other.
struct Dots {
  double a_a = 0, a_b = 0, b_b = 0;
};
using DotsFunction = Dots (*)(const std::byte* a, const std::byte* b, size_t count);
using CombineFunction = void (*)(std::byte* into, const std::byte* a, double of_a,
                                 const std::byte* b, double of_b, size_t count);

/// Immutable. A null fold means kAdasum, which is made of dots and combine; these are null for
/// types that are not floating-point. A null cast means that one of the two types is not a
/// floating-point type.
struct Kernels {
  const char* name = "";
  FoldFunction fold[kDTypeCount][kReduceOpCount] = {};
  CastFunction cast[kDTypeCount][kDTypeCount] = {};
  DotsFunction dots[kDTypeCount] = {};
  CombineFunction combine[kDTypeCount] = {};
};

/// The tables this processor can run, from the plainest (always "baseline") to the best.
[[nodiscard]] std::span<const Kernels* const> available_kernels();

/// Returns `factor` in the form that the kernels take.
[[nodiscard]] Scale make_scale(double factor);

}  // namespace corro::device
