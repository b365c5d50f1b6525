// The scalar reference of tests: one row, changed element by element by the formulas as they stand
// in the design note, in f32. The kernels and a whole table have to give the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "device/reduce.h"
#include "table/hash.h"
#include "table/initial.h"
#include "table/types.h"

namespace corro::table {

inline float in_range(float x) {
  constexpr float kMost = std::numeric_limits<float>::max();
  return std::fmax(-kMost, std::fmin(x, kMost));
}

/// The float that 16 bits of the type stand for.
inline float widened(DType dtype, uint16_t bits) {
  float value = 0;
  device::cast(dtype, reinterpret_cast<const std::byte*>(&bits), DType::kF32,
               reinterpret_cast<std::byte*>(&value), 1);
  return value;
}

/// Bits of the largest value of the type that is not above `magnitude`, which is not negative.
inline uint16_t floor_bits(DType dtype, float magnitude) {
  const uint32_t most = dtype == DType::kBF16 ? 0x7f7f : 0x7bff;
  uint32_t low = 0;
  uint32_t high = most;
  while (low < high) {
    const uint32_t middle = (low + high + 1) / 2;
    if (widened(dtype, static_cast<uint16_t>(middle)) <= magnitude) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<uint16_t>(low);
}

inline uint32_t naive_random(uint64_t rounding, size_t element) {
  uint32_t x = static_cast<uint32_t>(rounding) + static_cast<uint32_t>(element) * 0x9e3779b9U;
  x = (x ^ (x >> 16U)) * 0x7feb352dU;
  x ^= static_cast<uint32_t>(rounding >> 32U);
  x = (x ^ (x >> 15U)) * 0x846ca68bU;
  return x ^ (x >> 16U);
}

/// Between two values of the type: the upper one if random bits are below how near it is.
inline float naive_round(DType dtype, float value, uint64_t rounding, size_t element) {
  if (dtype == DType::kF32) return value;
  const float magnitude = std::fabs(value);
  const uint16_t low_bits = floor_bits(dtype, magnitude);
  const double low = widened(dtype, low_bits);
  const uint16_t most = dtype == DType::kBF16 ? 0x7f7f : 0x7bff;
  double result = low;
  if (low_bits != most) {
    const double high = widened(dtype, static_cast<uint16_t>(low_bits + 1));
    const int bits = dtype == DType::kBF16 ? 16 : (magnitude < 0x1p-14F ? 21 : 13);
    const double scale = std::ldexp(1.0, bits);
    const double part = std::floor((magnitude - low) / (high - low) * scale);
    const double random = std::fmod(naive_random(rounding, element), scale);
    if (part + random >= scale) result = high;
  }
  return std::copysign(static_cast<float>(result), value);
}

/// A row as a table keeps it, with its weights widened.
struct NaiveRow {
  std::vector<float> weights;
  std::vector<float> first;   ///< v, a, m or z.
  std::vector<float> second;  ///< v of Adam, n of FTRL.
  uint32_t pushes = 0;
};

/// The nearest value of the type.
inline float naive_nearest(DType dtype, float value) {
  if (dtype == DType::kF32) return value;
  const float most = widened(dtype, dtype == DType::kBF16 ? 0x7f7f : 0x7bff);
  value = std::fmax(-most, std::fmin(value, most));
  uint16_t bits = 0;
  device::cast(DType::kF32, reinterpret_cast<const std::byte*>(&value), dtype,
               reinterpret_cast<std::byte*>(&bits), 1);
  return widened(dtype, bits);
}

inline NaiveRow naive_initial(const TableSpec& spec, uint64_t key) {
  NaiveRow row;
  row.weights.resize(spec.dim);
  write_initial(spec, key, row.weights);
  for (float& weight : row.weights) weight = naive_nearest(spec.dtype, weight);
  const OptimizerKind kind = spec.optimizer.kind;
  const bool adagrad = kind == OptimizerKind::kAdagrad || kind == OptimizerKind::kRowwiseAdagrad;
  row.first.assign(kind == OptimizerKind::kRowwiseAdagrad ? 1 : spec.dim,
                   adagrad ? spec.optimizer.initial_accumulator : 0);
  row.second.assign(spec.dim,
                    kind == OptimizerKind::kFtrl ? spec.optimizer.initial_accumulator : 0);
  return row;
}

inline double naive_power(double base, uint32_t exponent) {
  if (exponent == 0) return 1;
  const double half = naive_power(base * base, exponent / 2);
  return exponent % 2 == 0 ? half : half * base;
}

/// One weight; `i` is its place.
inline float naive_next(const Optimizer& o, NaiveRow& row, float g, size_t i, float rate) {
  const float w = row.weights[i];
  const auto ratio = [](float a, float b) { return b > 0 ? a / b : 0.0F; };
  switch (o.kind) {
    case OptimizerKind::kSgd:
      return in_range(w - o.lr * g);
    case OptimizerKind::kMomentum:
      row.first[i] = in_range(o.momentum * row.first[i] + g);
      return in_range(w - o.lr * row.first[i]);
    case OptimizerKind::kAdagrad:
      row.first[i] = in_range(row.first[i] + g * g);
      return in_range(w - ratio(o.lr * g, std::sqrt(row.first[i]) + o.epsilon));
    case OptimizerKind::kRowwiseAdagrad:
      return in_range(w - rate * g);
    case OptimizerKind::kAdam: {
      row.first[i] = in_range(o.beta1 * row.first[i] + (1 - o.beta1) * g);
      row.second[i] = in_range(o.beta2 * row.second[i] + (1 - o.beta2) * in_range(g * g));
      const auto corrected = static_cast<float>(1 / (1 - naive_power(o.beta2, row.pushes)));
      const float root = std::sqrt(in_range(row.second[i] * corrected));
      return in_range(w - ratio(rate * row.first[i], root + o.epsilon));
    }
    case OptimizerKind::kFtrl: {
      const float squares = in_range(row.second[i] + g * g);
      const float s = in_range((std::sqrt(squares) - std::sqrt(row.second[i])) / o.lr);
      const float z = in_range(in_range(row.first[i] + g) - in_range(s * w));
      row.first[i] = z;
      row.second[i] = squares;
      const float divisor = (o.beta + std::sqrt(squares)) / o.lr + o.l2;
      if (!(divisor > 0)) return w;
      if (std::fabs(z) <= o.l1) return 0;
      return in_range(-(z > 0 ? z - o.l1 : z + o.l1) / divisor);
    }
  }
  return w;
}

/// Counts the push, and returns the rate that all elements of a row share.
inline float naive_rate(const Optimizer& o, NaiveRow& row, std::span<const float> gradient) {
  ++row.pushes;
  if (o.kind == OptimizerKind::kAdam) {
    return in_range(static_cast<float>(o.lr / (1 - naive_power(o.beta1, row.pushes))));
  }
  if (o.kind != OptimizerKind::kRowwiseAdagrad) return 0;
  std::array<float, 16> lanes{};
  for (size_t i = 0; i < gradient.size(); ++i) lanes.at(i % 16) += gradient[i] * gradient[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  const float mean = in_range(sum) / static_cast<float>(gradient.size());
  row.first[0] = in_range(row.first[0] + mean);
  const float root = std::sqrt(row.first[0]) + o.epsilon;
  return root > 0 ? in_range(o.lr / root) : 0;
}

inline void naive_update(const TableSpec& spec, NaiveRow& row, std::span<const float> gradient,
                         uint64_t rounding) {
  const float rate = naive_rate(spec.optimizer, row, gradient);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float next = naive_next(spec.optimizer, row, gradient[i], i, rate);
    row.weights[i] = naive_round(spec.dtype, next, rounding, i);
  }
}

/// The rounding of one push of one key.
inline uint64_t naive_rounding(const TableSpec& spec, uint64_t key, uint64_t step) {
  return number_at(hash_of(seed_for(Use::kRounding, spec.seed), key), step);
}

}  // namespace corro::table
