// The inner loop of a matrix product, for measuring how fast a core computes: compiled once for
// each instruction set, as the kernels of device/ are.
#pragma once

#include <cstddef>

namespace corro::app {

inline constexpr size_t kTileRows = 6;
inline constexpr size_t kTileDepth = 128;
inline constexpr size_t kTileColumns = 32;  ///< The most that an instruction set takes at a time.

/// Adds the product of a (kTileDepth columns of kTileRows) and b (kTileDepth rows of `columns`) to
/// the sums, `times` times. All f32, and small enough for the nearest cache.
struct TileProduct {
  using Run = void (*)(const float* a, const float* b, float* sums, size_t times);
  Run run;
  size_t columns;
  const char* name;  ///< "AVX2".
};

extern const TileProduct kBaselineProduct;
extern const TileProduct kAvx2Product;  ///< Of x86 alone, as the next one.
extern const TileProduct kAvx512Product;

/// The widest that this processor runs.
[[nodiscard]] const TileProduct& widest_product();

/// Lanes floats a vector, two vectors a row: 12 sums stay in registers, which is what hides the
/// latency of a multiply-add (as in BLIS: Van Zee and van de Geijn, "BLIS", ACM TOMS 2015).
template <size_t Lanes>
void add_tile_product(const float* a, const float* b, float* sums, size_t times) {
  using Vector [[gnu::vector_size(Lanes * sizeof(float)), gnu::aligned(4)]] = float;
  Vector sum[kTileRows][2] = {};
  for (size_t i = 0; i < times; ++i) {
    for (size_t k = 0; k < kTileDepth; ++k) {
      const Vector left = *reinterpret_cast<const Vector*>(b + k * 2 * Lanes);
      const Vector right = *reinterpret_cast<const Vector*>(b + k * 2 * Lanes + Lanes);
#pragma GCC unroll 6
      for (size_t row = 0; row < kTileRows; ++row) {
        const float factor = a[k * kTileRows + row];
        sum[row][0] += factor * left;
        sum[row][1] += factor * right;
      }
    }
  }
  for (size_t row = 0; row < kTileRows; ++row) {
    *reinterpret_cast<Vector*>(sums + row * 2 * Lanes) += sum[row][0];
    *reinterpret_cast<Vector*>(sums + row * 2 * Lanes + Lanes) += sum[row][1];
  }
}

}  // namespace corro::app
