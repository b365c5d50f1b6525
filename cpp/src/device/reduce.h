// Element-wise kernels on host memory: fold, scale, cast. Dispatched once to the best instruction
// set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "device/kernels.h"

namespace corro::device {

/// into[i] = post(sources[0][i] op sources[1][i] op ...), folded left to right.
///
/// f16 and bf16 accumulate in f32 over all sources and round once, to nearest even; `scale` (1 for
/// none) multiplies the result before rounding (f64 in double, f32/f16/bf16 in float, integers in
/// double, truncated toward zero and saturated; a scale of exactly 1.0 / n divides integers by n,
/// so an average of equal values is that value). bool: sum and max are "or", min and product are
/// "and"; a scale of 0 gives false. Integers wrap. NaN: min and max return NaN if any source is
/// NaN; every NaN written is the canonical quiet one. Of equal values min and max keep the first.
/// kAverage is kSum here: the caller folds 1/P into scale.
/// `into` may be exactly one of the sources; other overlap is not allowed. sources.size() >= 1.
/// Same bits for every instruction set and every way of cutting the range. Any alignment of
/// element size. Thread-safe.
void fold(DType dtype, ReduceOp op, std::byte* into, std::span<const std::byte* const> sources,
          size_t count, double scale);

/// data[i] = data[i] * scale, rounded to dtype as above; used for the pre-scale. `from` may equal
/// `into`.
void scale(DType dtype, std::byte* into, const std::byte* from, size_t count, double factor);

/// The dot products of two vectors of a floating-point type, in f64. Same bits for every
/// instruction set, but not for vectors that are cut: the sum goes round eight accumulators.
[[nodiscard]] Dots dots(DType dtype, const std::byte* a, const std::byte* b, size_t count);

/// into[i] = a[i] * of_a + b[i] * of_b of a floating-point type, in f64, since a factor may be far
/// larger than what it belongs to; rounded as fold() does, f16 and bf16 by way of f32. `into` may
/// be exactly one of them.
void combine(DType dtype, std::byte* into, const std::byte* a, double of_a, const std::byte* b,
             double of_b, size_t count);

/// Converts between f16, bf16, f32 and f64 with one rounding to nearest even; used by compression.
/// Equal types of any kind are copied bit for bit. `from` and `into` do not overlap otherwise.
void cast(DType from_dtype, const std::byte* from, DType into_dtype, std::byte* into, size_t count);

}  // namespace corro::device
