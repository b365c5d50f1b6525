#include "table/initial.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "table/hash.h"

namespace corro::table {
namespace {

/// In [0, 1), of 53 bits.
double fraction_of(uint64_t number) { return static_cast<double>(number >> 11U) * 0x1p-53; }

/// The natural logarithm of a normal number, to 1e-15: of a power of two, and of what is left,
/// between 1/2 and 2, by the series of atanh.
double log_of(double x) {
  constexpr uint64_t kOne = std::bit_cast<uint64_t>(1.0);
  constexpr uint64_t kFractionMask = (uint64_t{1} << 52U) - 1;
  const auto bits = std::bit_cast<uint64_t>(x);
  double exponent = static_cast<double>(bits >> 52U) - 1023;
  auto left = std::bit_cast<double>((bits & kFractionMask) | kOne);
  if (left > 1.5) {
    left /= 2;
    exponent += 1;
  }
  const double s = (left - 1) / (left + 1);
  double sum = 0;
  for (int power = 25; power >= 1; power -= 2) sum = sum * (s * s) + 1.0 / power;
  return exponent * std::numbers::ln2 + 2 * s * sum;
}

/// Which value a standard normal variable exceeds with probability `p`, in (0, 1/2], to about
/// 1e-7. Source: Wichura, "Algorithm AS 241: the percentage points of the normal distribution"
/// (1988), PPND7.
double normal_exceeded_with(double p) {
  const double q = 0.5 - p;
  if (q <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1);
  }
  const double r = std::sqrt(-log_of(p));
  if (r <= 5) {
    const double s = r - 1.6;
    return (((0.17023821103 * s + 1.3067284816) * s + 2.7568153900) * s + 1.4234372777) /
           ((0.12021132975 * s + 0.73700164250) * s + 1);
  }
  const double s = r - 5;
  return (((0.017337203997 * s + 0.42868294337) * s + 3.0812263860) * s + 6.6579051150) /
         ((0.012258202635 * s + 0.24197894225) * s + 1);
}

/// Bit 0 is the sign, and bits 12 to 63 say how far from the mean.
double normal_of(uint64_t number) {
  const double p = (static_cast<double>(number >> 12U) + 0.5) * 0x1p-53;
  const double magnitude = normal_exceeded_with(p);
  return (number & 1U) != 0 ? -magnitude : magnitude;
}

float value_of(const Initial& initial, uint64_t number) {
  const double low = initial.low;
  const double high = initial.high;
  if (initial.kind == InitialKind::kNormal) {
    return static_cast<float>(low + high * normal_of(number));
  }
  const auto value = static_cast<float>(low + (high - low) * fraction_of(number));
  return value < initial.high ? value : std::nextafter(initial.high, initial.low);
}

/// Tables of one seed differ by their names: a user and a film of one number begin as two rows.
/// Source: FNV-1a, 64 bits (Fowler, Noll, Vo).
uint64_t seed_of(const TableSpec& spec) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char letter : spec.name)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  return spec.seed ^ hash;
}

}  // namespace

void write_initial(const TableSpec& spec, uint64_t key, std::span<float> values) {
  if (spec.initial.kind == InitialKind::kConstant) {
    std::ranges::fill(values, spec.initial.low);
    return;
  }
  const uint64_t sequence = hash_of(seed_for(Use::kInitial, seed_of(spec)), key);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = value_of(spec.initial, number_at(sequence, i));
  }
}

}  // namespace corro::table
