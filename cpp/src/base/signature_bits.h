// SignatureBits: what a rank takes an operation to be, as it travels with the data. Compared as a
// whole; collective/signature.h says what is in it.
#pragma once

#include <cstdint>

namespace corro {

struct SignatureBits {
  uint64_t call = 0;     ///< Kind, dtype, reduce op, root, count.
  uint64_t shape = 0;    ///< The dims, as far as they fit, or a hash; 0: not given.
  uint32_t extras = 0;   ///< A hash of scales and counts per rank; 0: none.
  uint16_t element = 0;  ///< What is moved if dtype does not say it.

  friend bool operator==(const SignatureBits&, const SignatureBits&) = default;
};

}  // namespace corro
