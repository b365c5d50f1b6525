#include "app/planning/tile_product.h"

namespace corro::app {

const TileProduct kAvx2Product = {add_tile_product<8>, size_t{2} * 8, "AVX2"};

}  // namespace corro::app
