#include "app/planning/tile_product.h"

namespace corro::app {

const TileProduct& widest_product() {
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (avx2 && __builtin_cpu_supports("avx512f") != 0) return kAvx512Product;
  return avx2 ? kAvx2Product : kBaselineProduct;
}

}  // namespace corro::app
