#include "app/planning/tile_product.h"

namespace corro::app {

const TileProduct kBaselineProduct = {add_tile_product<4>, size_t{2} * 4, "baseline"};

}  // namespace corro::app
