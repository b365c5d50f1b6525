#include "device/reduce.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "device/kernels.h"
#include "device/kernels_sets.h"

namespace corro::device {
namespace {

/// Three places for the tables, filled from the plainest on.
struct Available {
  std::array<const Kernels*, 3> tables{};
  size_t count = 0;

  void add(const Kernels& kernels) { tables[count++] = &kernels; }
};

Available detect() {
  Available available;
  available.add(baseline_kernels());
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2) available.add(avx2_kernels());
  if (avx2 && avx512) available.add(avx512_kernels());
#endif
  return available;
}

const Kernels& best() {
  static const Kernels* const kBest = available_kernels().back();
  return *kBest;
}

}  // namespace

std::span<const Kernels* const> available_kernels() {
  static const Available kAvailable = detect();
  return {kAvailable.tables.data(), kAvailable.count};
}

Scale make_scale(double factor) {
  constexpr double kLargestDivisor = 1 << 30;
  const double divisor = std::nearbyint(1 / factor);
  if (divisor >= 2 && divisor <= kLargestDivisor && 1 / divisor == factor) {
    return {.factor = factor, .divisor = static_cast<int64_t>(divisor)};
  }
  return {.factor = factor};
}

void fold(DType dtype, ReduceOp op, std::byte* into, std::span<const std::byte* const> sources,
          size_t count, double scale) {
  CORRO_CHECK(!sources.empty());
  const FoldFunction function = best().fold[static_cast<size_t>(dtype)][static_cast<size_t>(op)];
  CORRO_CHECK(function != nullptr, name_of(op));
  function(into, sources.data(), sources.size(), count, make_scale(scale));
}

void scale(DType dtype, std::byte* into, const std::byte* from, size_t count, double factor) {
  fold(dtype, ReduceOp::kSum, into, {&from, 1}, count, factor);
}

Dots dots(DType dtype, const std::byte* a, const std::byte* b, size_t count) {
  const DotsFunction function = best().dots[static_cast<size_t>(dtype)];
  CORRO_CHECK(function != nullptr, name_of(dtype));
  return function(a, b, count);
}

void combine(DType dtype, std::byte* into, const std::byte* a, double of_a, const std::byte* b,
             double of_b, size_t count) {
  const CombineFunction function = best().combine[static_cast<size_t>(dtype)];
  CORRO_CHECK(function != nullptr, name_of(dtype));
  function(into, a, of_a, b, of_b, count);
}

void cast(DType from_dtype, const std::byte* from, DType into_dtype, std::byte* into,
          size_t count) {
  if (from_dtype == into_dtype) {
    if (count != 0) std::memmove(into, from, count * size_of(from_dtype));
    return;
  }
  const CastFunction function =
      best().cast[static_cast<size_t>(from_dtype)][static_cast<size_t>(into_dtype)];
  CORRO_CHECK(function != nullptr, name_of(from_dtype), name_of(into_dtype));
  function(from, into, count);
}

}  // namespace corro::device
