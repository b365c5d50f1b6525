// Adasum of vectors that lie here, against its definition.
#include "collective/operation/adasum.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "collective/operation/request.h"
#include "device/reduce.h"

namespace corro::collective {
namespace {

using Vector = std::vector<double>;

Vector reference_of_two(const Vector& a, const Vector& b) {
  double a_a = 0, a_b = 0, b_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    a_a += a[i] * a[i];
    a_b += a[i] * b[i];
    b_b += b[i] * b[i];
  }
  Vector sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    sum[i] = (a_a == 0 ? 1 : 1 - a_b / a_a / 2) * a[i] + (b_b == 0 ? 1 : 1 - a_b / b_b / 2) * b[i];
  }
  return sum;
}

/// Folds the first pairs until a power of two is left, then neighbours until one is left.
Vector reference(std::vector<Vector> vectors) {
  size_t power = 1;
  while (2 * power <= vectors.size()) power *= 2;
  for (size_t i = 0; vectors.size() > power; ++i) {
    vectors[i] = reference_of_two(vectors[i], vectors[i + 1]);
    vectors.erase(vectors.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  while (vectors.size() > 1) {
    std::vector<Vector> halved;
    for (size_t i = 0; i < vectors.size(); i += 2)
      halved.push_back(reference_of_two(vectors[i], vectors[i + 1]));
    vectors = std::move(halved);
  }
  return vectors[0];
}

Vector adasum_of(const std::vector<Vector>& vectors, double scale = 1) {
  std::vector<const std::byte*> sources;
  for (const Vector& vector : vectors)
    sources.push_back(reinterpret_cast<const std::byte*>(vector.data()));
  Vector into(vectors[0].size());
  adasum(DType::kF64, reinterpret_cast<std::byte*>(into.data()), sources, into.size(), scale);
  return into;
}

std::vector<Vector> random_vectors(size_t n, size_t count) {
  std::mt19937_64 random(n * 1000 + count);
  std::normal_distribution<double> normal;
  std::vector<Vector> vectors(n, Vector(count));
  for (Vector& vector : vectors)
    for (double& value : vector) value = normal(random);
  return vectors;
}

TEST(Adasum, OfTwoIsTheSumOfOrthogonalAndTheMeanOfEqualVectors) {
  EXPECT_EQ(adasum_of({{3, 0, 0}, {0, 4, 0}}), (Vector{3, 4, 0}));
  EXPECT_EQ(adasum_of({{2, 6}, {2, 6}}), (Vector{2, 6}));
  EXPECT_EQ(adasum_of({{1, 2}, {3, 6}}), (Vector{2, 4})) << "parallel: their mean";
  EXPECT_EQ(adasum_of({{1, 2}, {-1, -2}}), (Vector{0, 0}));
}

TEST(Adasum, AddsNothingForAVectorOfZeros) {
  EXPECT_EQ(adasum_of({{1.1, -7.3}, {0, 0}}), (Vector{1.1, -7.3}));
  EXPECT_EQ(adasum_of({{0, 0}, {1.1, -7.3}}), (Vector{1.1, -7.3}));
  EXPECT_EQ(adasum_of({{0, 0}, {0, 0}, {0, 0}}), (Vector{0, 0}));
}

TEST(Adasum, StaysFiniteWhereSquaresUnderflow) {
  const double tiny = std::numeric_limits<double>::min();
  EXPECT_EQ(adasum_of({{tiny, 0}, {1, 1}}), (Vector{1, 1}));
  EXPECT_EQ(adasum_of({{tiny}, {tiny}}), (Vector{2 * tiny}));
}

TEST(Adasum, OfOneVectorIsThatVectorScaled) { EXPECT_EQ(adasum_of({{1, -2}}, 3), (Vector{3, -6})); }

TEST(Adasum, OfAnyNumberIsATreeOfPairs) {
  for (size_t n = 1; n <= 17; ++n) {
    for (const size_t count : {1UL, 7UL, 1000UL}) {
      const auto vectors = random_vectors(n, count);
      const Vector want = reference(vectors);
      const Vector got = adasum_of(vectors, 0.5);
      for (size_t i = 0; i < count; ++i) ASSERT_NEAR(got[i], 0.5 * want[i], 1e-12) << n << " " << i;
    }
  }
}

TEST(Adasum, MayReplaceASource) {
  for (size_t n = 1; n <= 5; ++n) {
    for (size_t at = 0; at < n; ++at) {
      auto vectors = random_vectors(n, 100);
      const Vector want = adasum_of(vectors);
      std::vector<const std::byte*> sources;
      for (const Vector& vector : vectors)
        sources.push_back(reinterpret_cast<const std::byte*>(vector.data()));
      adasum(DType::kF64, reinterpret_cast<std::byte*>(vectors[at].data()), sources, 100, 1);
      EXPECT_EQ(vectors[at], want) << n << " " << at;
    }
  }
}

TEST(Adasum, SuitsEveryFloatingPointType) {
  const auto vectors = random_vectors(5, 3000);
  const Vector want = reference(vectors);
  const auto slack = [](DType dtype) {
    return dtype == DType::kBF16 ? 0.1 : dtype == DType::kF16 ? 0.01 : 1e-5;
  };
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    const size_t bytes = want.size() * size_of(dtype);
    std::vector<std::vector<std::byte>> typed(vectors.size(), std::vector<std::byte>(bytes));
    std::vector<const std::byte*> sources;
    for (size_t v = 0; v < vectors.size(); ++v) {
      device::cast(DType::kF64, reinterpret_cast<const std::byte*>(vectors[v].data()), dtype,
                   typed[v].data(), want.size());
      sources.push_back(typed[v].data());
    }
    std::vector<std::byte> into(bytes);
    adasum(dtype, into.data(), sources, want.size(), 1);
    Vector got(want.size());
    device::cast(dtype, into.data(), DType::kF64, reinterpret_cast<std::byte*>(got.data()),
                 got.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], slack(dtype)) << name_of(dtype) << " " << i;
  }
}

/// The factor of the smaller one does not fit into f32.
TEST(Adasum, OfParallelVectorsIsTheirMeanWhateverTheirSizes) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF64}) {
    const Vector small = {1e-30, 2e-30}, large = {1e18, 2e18};
    std::array<std::vector<std::byte>, 2> typed;
    std::vector<const std::byte*> sources;
    for (const Vector* vector : {&small, &large}) {
      auto& bytes = typed[sources.size()];
      bytes.resize(2 * size_of(dtype));
      device::cast(DType::kF64, reinterpret_cast<const std::byte*>(vector->data()), dtype,
                   bytes.data(), 2);
      sources.push_back(bytes.data());
    }
    adasum(dtype, typed[0].data(), sources, 2, 1);
    Vector got(2);
    device::cast(dtype, typed[0].data(), DType::kF64, reinterpret_cast<std::byte*>(got.data()), 2);
    EXPECT_NEAR(got[0], 0.5e18, 0.01e18) << name_of(dtype);
    EXPECT_NEAR(got[1], 1e18, 0.02e18) << name_of(dtype);
  }
}

TEST(Adasum, IsRefusedWhereItHasNoMeaning) {
  std::vector<double> memory(8);
  const auto message = [&](OpKind kind, DType dtype) {
    const OpRequest request{.kind = kind,
                            .dtype = dtype,
                            .reduce_op = ReduceOp::kAdasum,
                            .input = reinterpret_cast<const std::byte*>(memory.data()),
                            .output = reinterpret_cast<std::byte*>(memory.data()),
                            .count = 2};
    return validate(request, 0, 2).message();
  };
  EXPECT_EQ(message(OpKind::kAllreduce, DType::kI32),
            "allreduce: adasum needs f16, bf16, f32 or f64, not i32");
  EXPECT_EQ(message(OpKind::kAllreduce, DType::kBool),
            "allreduce: adasum needs f16, bf16, f32 or f64, not bool");
  EXPECT_EQ(message(OpKind::kReducescatter, DType::kF32),
            "reducescatter: adasum is there for allreduce alone");
  EXPECT_EQ(message(OpKind::kReduce, DType::kF32), "reduce: adasum is there for allreduce alone");
  EXPECT_EQ(message(OpKind::kAllreduce, DType::kF32), "");
  EXPECT_EQ(message(OpKind::kBroadcast, DType::kI32), "");
}

}  // namespace
}  // namespace corro::collective
