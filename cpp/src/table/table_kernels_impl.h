// The kernels, compiled once per instruction set (table_baseline.cc, table_avx2.cc,
// table_avx512.cc).
//
// Everything is in an unnamed namespace and nothing inline from the standard library is called, so
// that no function compiled for a newer processor can be picked by the linker for an older one.
// Loops are plain; the compiler vectorises them. Each element is computed by the same IEEE
// operations whatever the vector width, none of them contracted, so the bits agree. A result is
// never infinite and never NaN: what overflows becomes the largest finite value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "table/kernels.h"

#if defined(__clang__)
#define CORRO_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define CORRO_VECTORIZE _Pragma("GCC ivdep")
#endif

namespace corro::table {
namespace {

constexpr float kLargest = 3.40282347e+38F;

/// The nearest finite value.
inline float finite(float x) {
  const float below = x < kLargest ? x : kLargest;
  return below > -kLargest ? below : -kLargest;
}

bool all_finite_kernel(const float* values, size_t count) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t bad = 0;
  CORRO_VECTORIZE
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, values[i]);
    bad |= static_cast<uint32_t>((bits & kExponent) == kExponent);
  }
  return bad == 0;
}

// --- Optimizers ---

/// w -= lr * g.
void update_sgd(std::byte* row, const float* gradient, const UpdateArguments& arguments) {
  auto* const weights = reinterpret_cast<float*>(row);
  const float lr = arguments.optimizer.lr;
  CORRO_VECTORIZE
  for (size_t i = 0; i < arguments.dim; ++i) {
    weights[i] = finite(weights[i] - lr * gradient[i]);
  }
}

// --- Reading and writing ---

void read_f32(const std::byte* row, float* values, size_t dim) {
  const auto* const weights = reinterpret_cast<const float*>(row);
  CORRO_VECTORIZE
  for (size_t i = 0; i < dim; ++i) values[i] = weights[i];
}

void write_f32(std::byte* row, const float* values, size_t dim) {
  auto* const weights = reinterpret_cast<float*>(row);
  CORRO_VECTORIZE
  for (size_t i = 0; i < dim; ++i) weights[i] = finite(values[i]);
}

// --- The table ---

constexpr Kernels make_kernels(const char* name) {
  constexpr auto kF32 = static_cast<size_t>(DType::kF32);
  Kernels kernels;
  kernels.name = name;
  kernels.all_finite = all_finite_kernel;
  kernels.update[static_cast<size_t>(OptimizerKind::kSgd)][kF32] = update_sgd;
  kernels.read[kF32] = read_f32;
  kernels.write[kF32] = write_f32;
  return kernels;
}

}  // namespace
}  // namespace corro::table
