// Processors without wider vectors than those that every program may use.
#include "app/planning/tile_product.h"

namespace corro::app {

const TileProduct& widest_product() { return kBaselineProduct; }

}  // namespace corro::app
