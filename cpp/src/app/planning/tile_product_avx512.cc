#include "app/planning/tile_product.h"

namespace corro::app {

const TileProduct kAvx512Product = {add_tile_product<16>, size_t{2} * 16, "AVX-512"};

}  // namespace corro::app
