// Randomness from the kernel.
#pragma once

#include <sys/random.h>

#include <cstddef>
#include <span>

#include "base/check.h"

namespace corro::io {

/// Fills at most 256 bytes, which the kernel gives whole or not at all. Thread-safe.
inline void fill_random(std::span<std::byte> bytes) {
  CORRO_CHECK(bytes.size() <= 256, bytes.size());
  ssize_t got = -1;
  do {
    got = getrandom(bytes.data(), bytes.size(), 0);
  } while (got < 0);  // Only a signal while the machine boots.
  CORRO_CHECK(static_cast<size_t>(got) == bytes.size(), got);
}

}  // namespace corro::io
