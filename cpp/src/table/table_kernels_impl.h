// The kernels, compiled once per instruction set (table_baseline.cc, table_avx2.cc,
// table_avx512.cc).
//
// Everything is in an unnamed namespace and nothing inline from the standard library is called, so
// that no function compiled for a newer processor can be picked by the linker for an older one.
// Loops are plain; the compiler vectorises them. Each element is computed by the same IEEE
// operations whatever the vector width, none of them contracted, so the bits agree.
//
// Weights and state are always finite: what overflows becomes the largest finite value, and a
// division by zero changes nothing. Gradients are finite, so none of the sums below is inf - inf.
#pragma once

#include <cstddef>
#include <cstdint>

#include "table/kernels.h"
#include "table/table_kernels_types.h"

#if defined(__clang__)
#define CORRO_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define CORRO_VECTORIZE _Pragma("GCC ivdep")
#endif

namespace corro::table {
namespace {

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

// --- Optimizers: each is made for one row, and changes its weights one by one ---

inline float quotient(float a, float b) { return b > 0 ? a / b : 0.0F; }

/// w -= lr g.
struct Sgd {
  float lr;

  Sgd(const UpdateArguments& arguments, float* /*state*/, const float* /*gradient*/)
      : lr(arguments.optimizer.lr) {}
  [[nodiscard]] float next(float w, float g, size_t /*i*/) const { return finite(w - lr * g); }
};

/// v = momentum v + g; w -= lr v. State: v. As torch's SGD without dampening.
struct Momentum {
  float lr;
  float momentum;
  float* v;

  Momentum(const UpdateArguments& arguments, float* state, const float* /*gradient*/)
      : lr(arguments.optimizer.lr), momentum(arguments.optimizer.momentum), v(state) {}
  [[nodiscard]] float next(float w, float g, size_t i) const {
    v[i] = finite(momentum * v[i] + g);
    return finite(w - lr * v[i]);
  }
};

/// a += g^2; w -= lr g / (sqrt(a) + epsilon). State: a. Source: Duchi, Hazan, Singer, "Adaptive
/// subgradient methods" (2011), with epsilon where torch has it.
struct Adagrad {
  float lr;
  float epsilon;
  float* a;

  Adagrad(const UpdateArguments& arguments, float* state, const float* /*gradient*/)
      : lr(arguments.optimizer.lr), epsilon(arguments.optimizer.epsilon), a(state) {}
  [[nodiscard]] float next(float w, float g, size_t i) const {
    a[i] = finite(a[i] + g * g);
    return finite(w - quotient(lr * g, __builtin_sqrtf(a[i]) + epsilon));
  }
};

/// The sum of squares: element i in lane i % 16, then lane after lane.
inline float sum_of_squares(const float* values, size_t count) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    CORRO_VECTORIZE
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane] * values[i + lane];
  }
  for (size_t lane = 0; i + lane < count; ++lane)
    lanes[lane] += values[i + lane] * values[i + lane];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

/// a += mean of g^2; w -= lr / (sqrt(a) + epsilon) g. State: a, of the row. Source: Mudigere et
/// al., "Software-hardware co-design for fast and scalable training of deep learning recommendation
/// models" (2022).
struct RowwiseAdagrad {
  float rate;

  RowwiseAdagrad(const UpdateArguments& arguments, float* state, const float* gradient) {
    const float squares = finite(sum_of_squares(gradient, arguments.dim));
    *state = finite(*state + squares / static_cast<float>(arguments.dim));
    const float root = __builtin_sqrtf(*state) + arguments.optimizer.epsilon;
    rate = finite(quotient(arguments.optimizer.lr, root));
  }
  [[nodiscard]] float next(float w, float g, size_t /*i*/) const { return finite(w - rate * g); }
};

/// Two numbers to one power. Without a branch on the exponent's bits, which nobody can predict.
struct Powers {
  double first = 1;
  double second = 1;

  Powers(double base, double other_base, uint32_t exponent) {
    for (; exponent != 0; exponent >>= 1U) {
      const double factors[2][2] = {{1, 1}, {base, other_base}};
      first *= factors[exponent & 1U][0];
      second *= factors[exponent & 1U][1];
      base *= base;
      other_base *= other_base;
    }
  }
};

/// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// w -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon). State: m, v, and t, the pushes
/// of this row, as 32 bits: a row that comes rarely is corrected as one that comes often.
/// Source: Kingma, Ba, "Adam" (2015), algorithm 1.
struct Adam {
  float beta1;
  float beta2;
  float of_g;       ///< 1 - beta1
  float of_square;  ///< 1 - beta2
  float epsilon;
  float rate;          ///< lr / (1 - beta1^t)
  float v_correction;  ///< 1 / (1 - beta2^t)
  float* m;
  float* v;

  Adam(const UpdateArguments& arguments, float* state, const float* /*gradient*/)
      : beta1(arguments.optimizer.beta1),
        beta2(arguments.optimizer.beta2),
        of_g(1 - beta1),
        of_square(1 - beta2),
        epsilon(arguments.optimizer.epsilon),
        m(state),
        v(state + arguments.dim) {
    float* const t_bits = state + 2 * arguments.dim;
    const uint32_t before = __builtin_bit_cast(uint32_t, *t_bits);
    const uint32_t t = before == UINT32_MAX ? before : before + 1;
    *t_bits = __builtin_bit_cast(float, t);
    const auto lr = static_cast<double>(arguments.optimizer.lr);
    const Powers powers(beta1, beta2, t);
    rate = finite(static_cast<float>(lr / (1 - powers.first)));
    v_correction = static_cast<float>(1 / (1 - powers.second));
  }
  [[nodiscard]] float next(float w, float g, size_t i) const {
    m[i] = finite(beta1 * m[i] + of_g * g);
    v[i] = finite(beta2 * v[i] + of_square * finite(g * g));
    const float root = __builtin_sqrtf(finite(v[i] * v_correction));
    return finite(w - quotient(rate * m[i], root + epsilon));
  }
};

/// s = (sqrt(n + g^2) - sqrt(n)) / lr; z += g - s w; n += g^2;
/// w = 0 if |z| <= l1, else -(z - sign(z) l1) / ((beta + sqrt(n)) / lr + l2). State: z, n.
/// Source: McMahan et al., "Ad click prediction: a view from the trenches" (2013), algorithm 1;
/// w is computed with the push rather than with the pull.
struct Ftrl {
  float lr;
  float l1;
  float l2;
  float beta;
  float* z;
  float* n;

  Ftrl(const UpdateArguments& arguments, float* state, const float* /*gradient*/)
      : lr(arguments.optimizer.lr),
        l1(arguments.optimizer.l1),
        l2(arguments.optimizer.l2),
        beta(arguments.optimizer.beta),
        z(state),
        n(state + arguments.dim) {}
  [[nodiscard]] float next(float w, float g, size_t i) const {
    const float squares = finite(n[i] + g * g);
    const float root = __builtin_sqrtf(squares);
    const float s = finite((root - __builtin_sqrtf(n[i])) / lr);
    const float sum = finite(finite(z[i] + g) - finite(s * w));
    z[i] = sum;
    n[i] = squares;
    const float divisor = (beta + root) / lr + l2;
    const float beyond = sum > 0 ? sum - l1 : sum + l1;
    const float magnitude = sum > 0 ? sum : -sum;
    const float moved = magnitude <= l1 ? 0.0F : finite(-beyond / divisor);
    return divisor > 0 ? moved : w;
  }
};

template <typename Type, typename Kind>
void update_kernel(std::byte* weight_bytes, float* state, const float* gradient,
                   const UpdateArguments& arguments, uint64_t rounding) {
  auto* const weights = reinterpret_cast<typename Type::Element*>(weight_bytes);
  const size_t dim = arguments.dim;
  const Kind kind(arguments, state, gradient);
  CORRO_VECTORIZE
  for (size_t i = 0; i < dim; ++i) {
    const float next = kind.next(Type::load(weights[i]), gradient[i], i);
    weights[i] = Type::store(next, rounding, static_cast<uint32_t>(i));
  }
}

// --- Reading and writing ---

template <typename Type>
void read_kernel(const std::byte* weight_bytes, float* values, size_t dim) {
  const auto* const weights = reinterpret_cast<const typename Type::Element*>(weight_bytes);
  CORRO_VECTORIZE
  for (size_t i = 0; i < dim; ++i) values[i] = Type::load(weights[i]);
}

template <typename Type>
void write_kernel(std::byte* weight_bytes, const float* values, size_t dim) {
  auto* const weights = reinterpret_cast<typename Type::Element*>(weight_bytes);
  CORRO_VECTORIZE
  for (size_t i = 0; i < dim; ++i) weights[i] = Type::nearest(clamped(values[i], Type::kMost));
}

// --- The table ---

template <typename Type>
constexpr void add_type(Kernels& kernels, DType dtype) {
  const auto type = static_cast<size_t>(dtype);
  const auto add = [&kernels, type](OptimizerKind kind, UpdateFunction update) {
    kernels.update[static_cast<size_t>(kind)][type] = update;
  };
  add(OptimizerKind::kSgd, update_kernel<Type, Sgd>);
  add(OptimizerKind::kMomentum, update_kernel<Type, Momentum>);
  add(OptimizerKind::kAdagrad, update_kernel<Type, Adagrad>);
  add(OptimizerKind::kRowwiseAdagrad, update_kernel<Type, RowwiseAdagrad>);
  add(OptimizerKind::kAdam, update_kernel<Type, Adam>);
  add(OptimizerKind::kFtrl, update_kernel<Type, Ftrl>);
  kernels.read[type] = read_kernel<Type>;
  kernels.write[type] = write_kernel<Type>;
}

constexpr Kernels make_kernels(const char* name) {
  Kernels kernels;
  kernels.name = name;
  kernels.all_finite = all_finite_kernel;
  add_type<F32>(kernels, DType::kF32);
  add_type<BF16>(kernels, DType::kBF16);
  add_type<F16>(kernels, DType::kF16);
  return kernels;
}

}  // namespace
}  // namespace corro::table
