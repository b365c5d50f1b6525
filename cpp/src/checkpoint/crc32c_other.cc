// Processors without an instruction for it.
#include "checkpoint/crc32c.h"

namespace corro::checkpoint {

Crc32c fastest_crc32c() { return crc32c_by_tables; }

}  // namespace corro::checkpoint
